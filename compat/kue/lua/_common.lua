-- What the scripts of kue keyspaces in use share. KEYS[1] is the root of the side keys (compat/lua/_side.lua); KEYS[2] is P, what all
-- keys of kue begin with, its colon included; ARGV[1] is now. P<i>: decimal id, T: type (queue), S: state, m: the member that names a job.
--
-- P job:<i>          hash    the job              P jobs           zset  m, by priority
-- P job:<i>:log      list    its log              P jobs:S         zset  m, by priority; delayed: when due; active: end of its ttl, or
-- P job:types        set     T                                           the priority, turned below 0
-- P ids              string  the last id          P jobs:T:S       zset  m, by priority
-- P stats:work-time  string  ms                   P T:jobs         list  a 1 for each job that waits: what wakes kue's workers
-- P events           channel                      promotion:lock and activeJobsTTL:lock, without P: who promotes, who checks ttl
--
-- Versions differ: up to 0.10.2 a member is the plain id, up to 0.8 the delayed index is by priority, up to 0.7 neither results nor
-- attempts of completed jobs are kept. Which one it is shows in the keys (era()).

local P = KEYS[2]

-- From here on a score of the active index is the end of a ttl.
local SHORTEST_LEASE = 100000

-- From here on (March 1973) a score of the delayed index is a time.
local EARLIEST_TIME = 100000000000

-- A job that runs past its ttl is kue's to fail for so long, ms: its checks run every second and wait another second for an answer.
local GRACE = 2000

-- The versions that write differently, by the first of each, as in compat/kue/keys.py.
local V0_3, V0_8, V0_9, V0_10_3 = 3, 8, 9, 10

-- So many jobs at each end of the index of all jobs tell how old a keyspace with plain members is.
local SAMPLE = 20

-- A payload up to so many bytes is looked at before a job is given out; for longer ones that takes too long.
local CHECKED_BYTES = 100000

-- The fields of a job that decide about its transitions.
local FIELDS = {
  'type', 'state', 'priority', 'ttl', 'attempts', 'max_attempts', 'workerId', 'started_at', 'backoff', 'delay', 'removeOnComplete',
  'created_at', 'promote_at',
}

-- What kue before 0.8 publishes.
local OLD_EVENTS = {progress = true, complete = true, failed = true, promotion = true}

local function job_key(id)
  return P .. 'job:' .. id
end

-- The index of a state, and that of a state of one type.
local function by_state(state)
  return P .. 'jobs:' .. state
end

local function by_type(queue, state)
  return P .. 'jobs:' .. queue .. ':' .. state
end

local function tokens_of(queue)
  return P .. queue .. ':jobs'
end

-- The era, once it is known.
local KNOWN = {}

-- The era of a keyspace whose members are plain ids.
local function era_of_plain()
  local last = call('ZREVRANGE', by_state('delayed'), 0, 0, 'WITHSCORES')
  if last[2] and tonumber(last[2]) > EARLIEST_TIME then
    return V0_9
  end
  local is_0_8, is_older = false, false
  for _, command in ipairs({'ZRANGE', 'ZREVRANGE'}) do
    for _, member in ipairs(call(command, P .. 'jobs', 0, SAMPLE - 1)) do
      local found = attempt('HMGET', job_key(member), 'type', 'promote_at', 'max_attempts', 'result', 'backoff', 'removeOnComplete',
        'progress_data')
      if found and found[1] then
        if found[2] then
          return V0_9
        end
        is_0_8 = is_0_8 or found[4] or found[5] or found[6] or found[7]
        is_older = is_older or not found[3]
      end
    end
  end
  return (is_0_8 or not is_older) and V0_8 or V0_3
end

-- Which versions of kue use this keyspace; the newest where no job tells.
local function era()
  if not KNOWN.era then
    local first = call('ZRANGE', P .. 'jobs', 0, 0)[1]
    KNOWN.era = (not first or string.find(first, '|', 1, true)) and V0_10_3 or era_of_plain()
  end
  return KNOWN.era
end

-- The member that names a job.
local function member_of(id)
  return era() >= V0_10_3 and string.format('%02d|%s', #id, id) or id
end

-- The job that a member names; nil for none.
local function id_of(member)
  local text = string.match(member, '|(.*)$') or member
  return string.match(text, '^0*([1-9]%d*)$')
end

-- A number as JavaScript writes it.
local function number_text(number)
  return string.format(math.floor(number) == number and '%.0f' or '%.15g', number)
end

-- A text as JSON.
local function quoted(text)
  return (string.gsub(cjson.encode(text), '\\/', '/'))
end

-- Tells kue's listeners what has happened. `args` is JSON behind the event's name, with its first comma. A user who may not do that
-- (look.lua) must not be stopped half-way.
local function publish(id, event, args)
  local is_old = era() < V0_8
  if is_old and not OLD_EVENTS[event] then
    return
  end
  if is_old and event ~= 'progress' then
    args = ''
  end
  local name, shown = quoted(event), era() >= V0_10_3 and id or quoted(id)
  attempt('PUBLISH', P .. 'events', '{"id":' .. shown .. ',"event":' .. name .. ',"args":[' .. name .. (args or '') .. ']}')
end

-- The fields of a job that decide; nil where kue would find none: no hash, or no type in it.
local function read(id)
  local values = attempt('HMGET', job_key(id), unpack(FIELDS))
  if not values or not values[1] or values[1] == '' then
    return nil
  end
  local job = {id = id}
  for i, name in ipairs(FIELDS) do
    job[name] = values[i] or nil
  end
  return job
end

-- A number that stands in a text, as Redis takes it for a score: as kue has written it, if it is one of the plain ones; nil for none.
local function score_text(text)
  local number = tonumber(text)
  if not number or not (math.abs(number) < 1e300) then
    return nil
  end
  return #text <= 100 and string.find(text, '^%-?%d+%.?%d*$') and text or number_text(number)
end

-- A job's priority as a score; the text of kue, if it is a number.
local function priority_of(job)
  return score_text(job.priority) or '0'
end

local function ttl_of(job)
  local ttl = era() >= V0_9 and tonumber(job.ttl) or 0
  return ttl > 0 and ttl or nil
end

-- The score of a job that begins to run.
local function active_score(job, now)
  local ttl, priority = ttl_of(job), priority_of(job)
  if ttl then
    return now + ttl
  end
  if era() < V0_9 then
    return priority
  end
  local number = math.abs(tonumber(priority))
  return number == 0 and 0 or -number
end

-- The step that all transitions have in common: a job of any state enters another. `score` is that in the state's index, if it is not
-- the priority.
local function enter(job, state, now, score)
  local member, priority, old = member_of(job.id), priority_of(job), job.state
  call('HSET', job_key(job.id), 'updated_at', now, 'state', state)
  call('ZADD', by_state(state), score or priority, member)
  call('ZADD', by_type(job.type, state), priority, member)
  if old and old ~= state then
    call('ZREM', by_state(old), member)
    call('ZREM', by_type(job.type, old), member)
  end
  if old == 'active' and era() < V0_9 then
    call('HDEL', job_key(job.id), 'started_at', 'workerId') -- those versions know no such fields
  end
  job.state = state
  if state == 'inactive' then
    call('LPUSH', tokens_of(job.type), '1')
    publish(job.id, 'enqueue', ',' .. quoted(job.type))
  end
end

-- Which worker of its process a consumer says it is: a number of its own.
local function ordinal(consumer)
  return number_text(tonumber(string.sub(redis.sha1hex(consumer), 1, 8), 16))
end

-- Whether the job was taken by this consumer, and by nobody since.
local function runs_at(job, consumer)
  local worker = ':' .. ordinal(consumer)
  return job.state == 'active' and job.workerId and string.sub(job.workerId, -#worker) == worker
end

-- What a reply says of a job that is for a consumer: {id, priority, lapses, data, ferryman or '', attempts, max_attempts or '', ttl or ''}.
local function described(job, data, extra)
  local lapses = call('HGET', SIDE .. 'lapses:' .. job.type, job.id) or '0'
  local ttl = ttl_of(job) and job.ttl or ''
  return {job.id, priority_of(job), tonumber(lapses), data, extra or '', tonumber(job.attempts) or 0, job.max_attempts or '', ttl}
end

-- Whether another process is at work under one of kue's locks. One without an end is nobody's: kue itself can't take it again.
local function is_locked(name)
  return (attempt('PTTL', name) or -2) >= 0
end

-- A job that a consumer holds; nil if it is not, or no longer, its own. A job past its ttl is not while kue checks the ttls: it
-- would fail the job once more.
local function held_job(queue, consumer, id, now)
  if not holds(queue, consumer, id) then
    return nil
  end
  local job = read(id)
  if job and job.type == queue and runs_at(job, consumer) then
    if not ttl_of(job) then
      return job
    end
    local ends = tonumber(call('ZSCORE', by_state('active'), member_of(id)) or now)
    if ends > now or not is_locked('activeJobsTTL:lock') then
      return job
    end
  end
  let_go(queue, id, true)
  return nil
end

-- Deletes the traces of a job in kue's search index.
local function unindex(id)
  local object = P .. 'search:object:' .. id
  local kind = call('TYPE', object).ok
  if kind == 'zset' or kind == 'set' then
    local words = kind == 'zset' and call('ZRANGE', object, 0, -1) or call('SMEMBERS', object)
    for _, word in ipairs(words) do
      attempt(kind == 'zset' and 'ZREM' or 'SREM', P .. 'search:word:' .. word, id)
    end
    call('DEL', object)
  end
end

-- Deletes a job as kue does. Its wake token stays, and costs somebody an empty look.
local function delete(job)
  local member = member_of(job.id)
  if job.state then
    call('ZREM', by_state(job.state), member)
    call('ZREM', by_type(job.type, job.state), member)
  end
  call('ZREM', P .. 'jobs', member)
  call('DEL', job_key(job.id) .. ':log', job_key(job.id))
  unindex(job.id)
  publish(job.id, 'remove', ',' .. quoted(job.type))
end

-- Deletes what is no job (no hash, or one without a type), as kue does when it reads one.
local function delete_invalid(id, member, queue)
  call('DEL', job_key(id) .. ':log', job_key(id))
  for _, state in ipairs({'inactive', 'active', 'complete', 'failed', 'delayed'}) do
    call('ZREM', by_state(state), member)
    if queue then
      call('ZREM', by_type(queue, state), member)
    end
  end
  call('ZREM', P .. 'jobs', member)
end

-- Whether a job has a backoff, and after how many ms it runs again; nil as long as kue can't tell either. The source of a JavaScript
-- function is never run: such a job has its own delay again.
local function backoff_of(job, attempts)
  local text = job.backoff
  if not text or text == '' or text == 'false' or text == 'null' or text == '0' or text == '""' then
    return false
  end
  local own = tonumber(job.delay)
  local fine, backoff = pcall(cjson.decode, text)
  if not fine or type(backoff) ~= 'table' then
    return true, own
  end
  local delay = tonumber(backoff.delay)
  delay = delay and delay ~= 0 and delay or own
  if delay and backoff.type == 'exponential' then
    local most = tonumber(backoff.maxDelay)
    most = most and most ~= 0 and most or math.huge
    delay = math.floor(math.min(most - delay * 0.5, delay * 0.5 * (2 ^ attempts - 1)) + 0.5)
  end
  return true, delay
end

-- A failed job is to run again at some time: when a moment has come, and after how many ms (nil: as before).
local function delay_job(job, now, delay)
  local score
  if delay and delay > 0 then
    if era() < V0_8 then
      delay = delay + now - (tonumber(job.created_at) or now) -- it counts from the creation there
    end
    job.delay = number_text(delay)
    call('HSET', job_key(job.id), 'delay', job.delay)
  end
  if era() >= V0_9 then
    local last = tonumber(job.delay)
    score = last and last > 0 and last < 1e300 and number_text(now + math.floor(last))
    score = score or score_text(job.promote_at) or score_text(job.created_at) or number_text(now)
    call('HSET', job_key(job.id), 'promote_at', score)
  end
  enter(job, 'delayed', now, score)
end

-- Counts a finished attempt, as far as kue does. Returns how many there are now, and how many are left.
local function count_attempt(job)
  local made, most = tonumber(job.attempts) or 0, tonumber(job.max_attempts)
  if not most then
    return made, 0
  end
  if made < most or era() < V0_10_3 then
    made = made + 1
    job.attempts = number_text(made)
    call('HSET', job_key(job.id), 'attempts', job.attempts)
  end
  return made, math.max(0, most - made)
end

-- An attempt has failed. `message` is one line, `text` all of it. `options`: `is_final`: no other follows; `delay`: after so many ms,
-- whatever the job's backoff says; `is_silent`: as when kue's ttl check does it. Returns the state that the job has then.
local function fail_attempt(job, now, message, text, options)
  local key = job_key(job.id)
  call('HSET', key, 'error', text, 'failed_at', now)
  call('RPUSH', key .. ':log', string.match(text, '^[^\n]*'))
  publish(job.id, 'error', ',' .. quoted(text))
  if era() < V0_8 and not job.max_attempts then
    job.max_attempts = '1'
    call('HSET', key, 'max_attempts', '1')
  end
  local made, left = count_attempt(job)
  if options.is_final and left > 0 then
    call('HSET', key, 'attempts', job.max_attempts) -- kue knows no other sign that none is left
    left = 0
  end
  if left == 0 then
    enter(job, 'failed', now)
    if not options.is_silent then
      publish(job.id, 'failed', ',' .. quoted(message) .. ',null')
    end
    return 'failed'
  end
  local has_backoff, delay = backoff_of(job, made)
  if options.delay then
    has_backoff, delay = options.delay > 0, options.delay
  end
  if has_backoff then
    delay_job(job, now, delay)
  else
    enter(job, 'inactive', now)
  end
  if era() < V0_8 then
    publish(job.id, 'failed')
  elseif not options.is_silent then
    publish(job.id, 'failed attempt', ',' .. quoted(message) .. ',' .. number_text(made))
  end
  return job.state
end

-- The words of the contract for kue's states.
local OUTCOMES = {inactive = 'waiting', delayed = 'scheduled', failed = 'failed', complete = 'completed'}

-- A run has ended without an attempt: the job waits again as it was.
local function give_back(job, now)
  enter(job, 'inactive', now)
end

-- Gives back, or fails, what consumers held whose lease has lapsed. Returns how many jobs there were.
local function reclaim_lapsed(queue, now, limit, delivery_limit)
  return reclaim(queue, now, limit, function(id, lapses, consumer)
    local job = read(id)
    if not job or job.type ~= queue or not runs_at(job, consumer) then
      let_go(queue, id, true)
    elseif lapses > delivery_limit then
      let_go(queue, id, true)
      local text = 'delivery_limit: ' .. lapses .. ' consumers were lost while they ran it, the last one ' .. consumer
      fail_attempt(job, now, text, text, {is_final = true})
    else
      give_back(job, now)
    end
  end)
end

-- Forgets the lapses of jobs that have ended, or that kue runs, of so many that it looks at.
local function forget_lapses(queue)
  for _, id in ipairs(call('HRANDFIELD', SIDE .. 'lapses:' .. queue, 200)) do
    local state = attempt('HGET', job_key(id), 'state')
    if not holder_of(queue, id) and state ~= 'inactive' and state ~= 'delayed' then
      let_go(queue, id, true)
    end
  end
end

-- When a job of an old keyspace is due; nil for what is no job. 0.8 counts from the last failure, before it was the creation.
local function due_time(id)
  local found = attempt('HMGET', job_key(id), 'delay', 'created_at', 'failed_at')
  if not found then
    return nil
  end
  local since = tonumber(era() >= V0_8 and found[3] or found[2] or '') or 0
  return since + (tonumber(found[1] or '') or 0)
end

-- The members of the delayed index that are due, at most `limit`; of an index by priority it looks at so many, each time elsewhere.
local function due_members(now, limit)
  local index = by_state('delayed')
  if era() >= V0_9 then
    return call('ZRANGEBYSCORE', index, 0, now, 'LIMIT', 0, limit)
  end
  local count, due = call('ZCARD', index), {}
  local first = count > limit and now % math.ceil(count / limit) * limit or 0
  for _, member in ipairs(call('ZRANGE', index, first, first + limit - 1)) do
    local id = id_of(member)
    if id and (due_time(id) or 0) <= now then -- of what is no job, read() says so
      append(due, member)
    end
  end
  return due
end

-- Promotes delayed jobs of all types, unless a process of kue is about to. Returns how many were looked at, and whether it is.
local function promote(now, limit)
  local members = due_members(now, limit)
  if #members == 0 then
    return 0, false
  end
  if is_locked('promotion:lock') then
    return 0, true
  end
  for _, member in ipairs(members) do
    local id = id_of(member)
    local job = id and read(id)
    if id and not job then
      delete_invalid(id, member)
    elseif job and (job.state or 'delayed') ~= 'delayed' then
      -- The hash is right: it runs, or has run.
      call('ZREM', by_state('delayed'), member)
      call('ZREM', by_type(job.type, 'delayed'), member)
    elseif job then
      publish(id, 'promotion')
      job.state = 'delayed'
      enter(job, 'inactive', now)
    end
  end
  return #members, false
end

-- Fails jobs that run past their ttl, unless a process of kue is about to. Those of our consumers at once; the others, if `all` of them
-- are asked for, are announced to kue's workers, and failed if nothing has come of that. Returns how many were looked at.
local function expire(now, limit, all)
  local pairs_found = call('ZRANGEBYSCORE', by_state('active'), SHORTEST_LEASE, now, 'WITHSCORES', 'LIMIT', 0, limit)
  if #pairs_found == 0 or is_locked('activeJobsTTL:lock') then
    return 0
  end
  for i = 1, #pairs_found, 2 do
    local member, ends = pairs_found[i], tonumber(pairs_found[i + 1])
    local id = id_of(member)
    local job = id and read(id)
    local holder = job and holder_of(job.type, id)
    if job then
      job.state = job.state or 'active'
    end
    if id and not job then
      delete_invalid(id, member)
    elseif job and job.state ~= 'active' then
      call('ZREM', by_state('active'), member)
      call('ZREM', by_type(job.type, 'active'), member)
    elseif job and holder and runs_at(job, holder) then
      publish(id, 'ttl exceeded')
      let_go(job.type, id, true)
      fail_attempt(job, now, 'TTL exceeded', 'TTL exceeded', {})
      publish(id, 'ttl exceeded ack')
    elseif job and all then
      publish(id, 'ttl exceeded')
      if ends <= now - GRACE then
        fail_attempt(job, now, 'TTL exceeded', 'TTL exceeded', {is_silent = true})
      end
    end
  end
  return #pairs_found / 2
end
