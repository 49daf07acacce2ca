-- What kickq's scripts share: the record of a job, and the moves that kickq's own processes make, each as one step.
--
-- KEYS[1]  root of the side keys (compat/side.py), besides: started:<queue>, hash, job id -> '<start of its run, ms> <its limit, ms>'
-- KEYS[2]  what kickq's keys begin with: its namespace and a colon
-- ARGV[1]  now
-- ARGV[2]  what its channels begin with: the same, but for what redisOptions.prefix puts before keys alone
-- ARGV[3]  in how many ms a finished job is to be deleted
--
-- | key              | type | holds                                                                                    |
-- |------------------|------|------------------------------------------------------------------------------------------|
-- | id               | int  | the last id given out                                                                    |
-- | job:<id>         | hash | itemData, one JSON document, and its mirrors id, name, createTime, updateTime; state, which is the truth |
-- |                  |      | and not in step with the document; ferryman, what Celery knows of the job                |
-- | queue:<name>     | list | ids that wait, the next one first                                                        |
-- | state:<word>     | set  | ids by state: new, queued, delayed, retry, ghost, processing, success, fail              |
-- | time-index       | zset | ids by the time of their creation                                                        |
-- | scheduled        | zset | ids of delayed, retry and ghost by due time, of all queues                               |
-- | scheduled-purge  | zset | ids of success and fail by the time of their deletion                                    |
--
-- A document is changed as text, member by member: what nobody touches keeps its bytes, whatever numbers it holds. The document is
-- written at a run's end only; in queued and processing it still has the state from before.

local JOB, QUEUE, STATE = KEYS[2] .. 'job:', KEYS[2] .. 'queue:', KEYS[2] .. 'state:'
local TIME_INDEX, SCHEDULED, PURGE = KEYS[2] .. 'time-index', KEYS[2] .. 'scheduled', KEYS[2] .. 'scheduled-purge'
local COUNTER = KEYS[2] .. 'id'

local WORDS = {'new', 'queued', 'delayed', 'retry', 'ghost', 'processing', 'success', 'fail'}

-- The words that a document keeps while the job is queued and while it runs.
local PROMOTED = {delayed = true, retry = true, ghost = true}

local FINISHED = {success = true, fail = true}

local TIMED_OUT = '"processing timed out"'

-- The longest limit that a timer of Node.js can have. More counts as 1 ms.
local LONGEST_RUN = 2147483647

-- Bytes of documents after which a call that reads many stops, to be sent again: some ms.
local MAX_BYTES = 4 * 1024 * 1024

-- How long it is remembered that consumers of a job have lapsed, ms. Jobs that kickq's own workers end tell nobody.
local LAPSES_REMEMBERED = 86400000

-- The members of a document in kickq's order, and what it takes for those that are missing. It knows no other id and name.
local ORDER = {
  'id', 'name', 'complete', 'success', 'createTime', 'updateTime', 'finishTime', 'totalProcessTime', 'delay', 'processTimeout',
  'retry', 'retryTimes', 'retryInterval', 'hotjob', 'hotjobTimeout', 'ghostRetry', 'ghostTimes', 'ghostInterval', 'data',
  'lastError', 'scheduledFor', 'state', 'runs', 'hotjobPromise',
}
local DEFAULTS = {
  complete = 'false', success = 'false', finishTime = 'null', totalProcessTime = 'null', delay = 'null', processTimeout = '10000',
  retry = 'false', retryTimes = '3', retryInterval = '1800000', hotjob = 'false', hotjobTimeout = '10000', ghostRetry = 'true',
  ghostTimes = '1', ghostInterval = '1800000', data = 'null', lastError = 'null', scheduledFor = 'null', runs = '[]',
  hotjobPromise = 'null',
}

-- A time or a count as JavaScript writes it.
local function digits(number)
  return string.format('%.0f', number)
end

-- JSON

-- Documents of more bytes are not parsed as a whole: that takes as long as to read them a hundred times.
local SMALL = 16384

-- So often a payload may have members that look like those behind it, before it is walked through after all.
local MOST_TRIES = 8

-- The value of a JSON text; nil, and whether it is only nested too deep for this parser.
local function parsed(text)
  local fine, value = decode_json(text)
  if fine then
    return value
  end
  return nil, string.find(tostring(value), 'nested', 1, true) ~= nil
end

-- The member whose name begins at `at`: its name, and where its value begins.
local function member_at(text, at)
  local last = string_end(text, at)
  return string.sub(text, at + 1, last - 1), string.find(text, '[^%s:]', last + 1)
end

-- Whether the members of the whole document go on at `at`, and not those of an object within: the brace that ends them is the last.
local function is_outermost(text, at)
  repeat
    local _, start = member_at(text, string.find(text, '"', at, true))
    at = string.find(text, '[,}]', value_end(text, start) + 1)
  until string.byte(text, at) == 125
  return not string.find(text, '%S', at + 1)
end

-- The position behind a large payload that begins at `at`, in a document that kickq has saved: `lastError` comes next. Nil for one that
-- must be walked through.
local function payload_end(text, at)
  local found = at
  for _ = 1, MOST_TRIES do
    found = string.find(text, ',"lastError":', found + 1, true)
    if not found or is_outermost(text, found) then
      return found
    end
  end
end

-- Whether these are all members that kickq saves before the payload, in its order.
local function is_saved_by_kickq(names)
  for i, name in ipairs(ORDER) do
    if name == 'data' then
      return names[i] == nil
    elseif names[i] ~= name then
      return false
    end
  end
end

-- The members of a document: their names in order, and their texts by name. Of two with one name the last counts. An error for what
-- is no object.
local function members_of(text)
  local names, texts = {}, {}
  local at = string.find(text, '["}]', select(2, string.find(text, '^%s*{')) + 1)
  while string.byte(text, at) == 34 do
    local name, start = member_at(text, at)
    local is_large = name == 'data' and #text - start > SMALL
    local stop = is_large and is_saved_by_kickq(names) and payload_end(text, start) or value_end(text, start) + 1
    if not texts[name] then
      append(names, name)
    end
    texts[name] = string.sub(text, start, stop - 1)
    at = string.find(text, '["}]', stop)
  end
  if string.find(text, '%S', at + 1) then
    error('more than one value')
  end
  return names, texts
end

-- The value of a member's text; nil for what is no JSON, or is not there.
local function value_of(text)
  local list = text and parsed('[' .. text .. ']')
  return list and list[1]
end

-- What JavaScript makes of a member where it wants a number; 0 for what is none.
local function as_count(text)
  return tonumber(string.match(text, '^"(.*)"$') or text) or 0
end

-- Whether JavaScript takes a member for true.
local function truthy(text)
  return not (text == 'false' or text == 'null' or text == '""' or tonumber(text) == 0)
end

-- How long kickq waits when told to wait so long: it counts modulo 2^32, without fractions.
local function interval(text)
  local ms = as_count(text)
  return (ms < 0 and math.ceil(ms) or math.floor(ms)) % 4294967296
end

-- Records

-- A job as its record has it: id, state, name (that of its queue), text, mirror (the name as the hash has it). Nil for what no worker
-- can run, and whether that is so only because the document is nested too deep to be read here.
local function open_job(id)
  local found = attempt('HMGET', JOB .. id, 'itemData', 'state', 'name')
  local text = found and found[1]
  if not text then
    return nil
  end
  if #text <= SMALL then
    local item, too_deep = parsed(text)
    if type(item) ~= 'table' then
      return nil, too_deep
    end
  end
  local fine, names, members = pcall(members_of, text)
  if not fine or value_of(members.id) ~= id then
    return nil
  end
  local name = value_of(members.name)
  name = (type(name) == 'string' or type(name) == 'number') and tostring(name) or nil
  return {
    id = id, state = found[2] or '', name = name or '', text = text, mirror = name or found[3] or '', names = names, members = members,
  }
end

-- The text of a member, or what kickq takes for it.
local function member(job, name)
  return job.members[name] or DEFAULTS[name]
end

local function set_member(job, name, text)
  if not job.members[name] then
    append(job.names, name)
  end
  job.members[name] = text
end

-- The document. Once kickq has saved it, it has all members, in its order; those that kickq doesn't know come last.
local function document_of(job)
  local is_whole, known, parts = true, {}, {}
  for _, name in ipairs(ORDER) do
    known[name] = true
    is_whole = is_whole and member(job, name) == job.members[name]
  end
  local names = job.names
  if not is_whole then
    names = {}
    for _, name in ipairs(ORDER) do
      append(names, name)
    end
    for _, name in ipairs(job.names) do
      if not known[name] then
        append(names, name)
      end
    end
  end
  for _, name in ipairs(names) do
    local text = member(job, name)
    if text then
      append(parts, '"' .. name .. '":' .. text)
    end
  end
  return '{' .. table.concat(parts, ',') .. '}'
end

-- Publishes an event twice, as kickq does: to those who listen for the queue, and to those who listen for all. A user who may not
-- publish goes without: kickq itself does not wait for that either.
local function publish(event, name, text)
  attempt('PUBLISH', ARGV[2] .. event .. (name == '' and '' or ':' .. name), text)
  attempt('PUBLISH', ARGV[2] .. event, text)
end

-- Whether kickq keeps sets of the jobs by state: not before 0.0.12. There are none, though there are jobs; a job that is being made
-- gets into its set before it gets into the time index.
local function has_state_sets()
  local sets = {}
  for _, word in ipairs(WORDS) do
    append(sets, STATE .. word)
  end
  if call('EXISTS', unpack(sets)) > 0 then
    return true
  end
  local newest = call('ZREVRANGE', TIME_INDEX, 0, 0)[1]
  return not newest or call('EXISTS', JOB .. newest) == 0
end

-- Moves a job to another state; its document is not touched.
local function move(job, word)
  if job.state == word then
    return
  end
  call('HSET', JOB .. job.id, 'state', word)
  if call('SMOVE', STATE .. job.state, STATE .. word, job.id) == 0 and has_state_sets() then
    call('SADD', STATE .. word, job.id)
  end
  job.state = word
end

-- Stores the document, and its mirrors in the hash. Returns it.
local function save(job, now)
  set_member(job, 'updateTime', digits(now))
  set_member(job, 'state', '"' .. job.state .. '"')
  if not member(job, 'createTime') then
    set_member(job, 'createTime', digits(now))
  end
  local text = document_of(job)
  call('HSET', JOB .. job.id, 'id', job.id, 'name', job.mirror, 'createTime', member(job, 'createTime'), 'updateTime', digits(now),
    'state', job.state, 'itemData', text)
  return text
end

-- What a run's error is called in documents: it was another name up to 0.2.4. A job without runs goes by the last one that has ended.
local function error_name(runs, is_first)
  local text = runs
  if is_first then
    local last = call('ZREVRANGE', PURGE, 0, 0)[1]
    text = last and attempt('HGET', JOB .. last, 'itemData') or ''
    text = string.sub(text, -SMALL) -- behind its payload, which may be large
  end
  return string.find(text, '"state":"%a+","errorMessage":') and 'errorMessage' or 'error'
end

-- Notes in a document that a run has ended. Returns how many there are now, how many of those took too long, and all their time, ms.
local function add_run(job, now, started, word, problem)
  local text = member(job, 'runs')
  local runs = parsed(text)
  if type(runs) ~= 'table' or string.byte(text) ~= 91 then
    text, runs = '[]', {}
  end
  local took = math.max(0, now - started)
  local ghosts, total = word == 'ghost' and 1 or 0, took
  for _, run in ipairs(runs) do
    if type(run) == 'table' then
      ghosts = ghosts + (run.state == 'ghost' and 1 or 0)
      total = total + (tonumber(run.processTime) or 0)
    end
  end
  local run = '{"count":' .. #runs + 1 .. ',"startTime":' .. digits(started) .. ',"processTime":' .. digits(took)
    .. ',"processTimeout":' .. member(job, 'processTimeout') .. ',"state":"' .. word .. '","' .. error_name(text, #runs == 0)
    .. '":' .. (problem or 'null') .. ',"timeout":null}'
  set_member(job, 'runs', #runs == 0 and '[' .. run .. ']' or string.match(text, '^(.*)%]') .. ',' .. run .. ']')
  if problem then
    set_member(job, 'lastError', problem)
  end
  return #runs + 1, ghosts, total
end

-- Runs

-- How long a run may take, ms.
local function limit_of(job)
  local limit = math.floor(as_count(member(job, 'processTimeout')))
  return limit >= 1 and limit <= LONGEST_RUN and limit or 1
end

-- A consumer begins a job's run.
local function begin_run(queue, consumer, job, now)
  hold(queue, consumer, job.id)
  call('HSET', SIDE .. 'started:' .. queue, job.id, digits(now) .. ' ' .. digits(limit_of(job)))
  move(job, 'processing')
end

-- When a run of ours began, and how long it may take.
local function started_at(queue, id, now)
  local start, limit = string.match(call('HGET', SIDE .. 'started:' .. queue, id) or '', '^(%d+) (%d+)$')
  return tonumber(start) or now, tonumber(limit) or math.huge
end

-- A run of ours has ended, and so perhaps has the job.
local function leave_run(queue, id, is_over)
  let_go(queue, id, is_over)
  call('HDEL', SIDE .. 'started:' .. queue, id)
end

-- The job that a consumer holds; nil for one that is not, or no longer, its own: somebody else has deleted or ended it.
local function held_job(queue, consumer, id)
  if not holds(queue, consumer, id) then
    return nil
  end
  local job = open_job(id)
  if job and job.state == 'processing' then
    return job
  end
  leave_run(queue, id, true)
  return nil
end

-- The end of a job whose last run is noted. `word`: success or fail; `total`: the time of all runs.
local function finish(job, now, word, total)
  move(job, word)
  set_member(job, 'complete', 'true')
  set_member(job, 'success', word == 'success' and 'true' or 'false')
  set_member(job, 'finishTime', digits(now))
  set_member(job, 'totalProcessTime', digits(total))
  local deleted_at = digits(now + tonumber(ARGV[3]))
  set_member(job, 'scheduledFor', deleted_at)
  local text = save(job, now)
  call('ZADD', PURGE, deleted_at, job.id)
  publish(word, job.name, text)
end

-- Another run, later. Those who listen learn of the failure before the new time is set.
local function postpone(job, now, word, delay)
  move(job, word)
  local text = save(job, now)
  set_member(job, 'scheduledFor', digits(now + delay))
  save(job, now)
  call('ZADD', SCHEDULED, digits(now + delay), job.id)
  publish('fail', job.name, text)
end

-- The end of a run that has failed, or has taken too long: `run` is fail or ghost. `delay`: instead of what the job says.
-- Returns whether there is another one.
local function fail_run(job, now, started, run, problem, is_final, delay)
  local count, ghosts, total = add_run(job, now, started, run, problem)
  local word, goes_on, after = 'retry', truthy(member(job, 'retry')) and count < as_count(member(job, 'retryTimes')), 'retryInterval'
  if run == 'ghost' then
    word, after = 'ghost', 'ghostInterval'
    goes_on = truthy(member(job, 'ghostRetry')) and ghosts <= as_count(member(job, 'ghostTimes'))
  end
  if is_final or not goes_on then
    finish(job, now, 'fail', total)
    return false
  end
  postpone(job, now, word, delay or interval(member(job, after)))
  return true
end

-- Giving back

-- Puts jobs that were being run back to where they were taken, in their order, in the state in which they waited.
local function give_back(queue, jobs)
  for i = #jobs, 1, -1 do
    local word = value_of(member(jobs[i], 'state')) or ''
    call('LPUSH', QUEUE .. queue, jobs[i].id)
    move(jobs[i], PROMOTED[word] and 'queued' or 'new')
  end
end

-- Gives back what consumers held that have lapsed, at most `limit` jobs; a job of which that is said too often has failed.
-- Returns how many there were.
local function reclaim_lapsed(queue, now, limit, delivery_limit)
  local returned = {}
  local count = reclaim(queue, now, limit, function(id, lapses)
    local started = started_at(queue, id, now)
    call('HDEL', SIDE .. 'started:' .. queue, id)
    call('PEXPIRE', SIDE .. 'lapses:' .. queue, LAPSES_REMEMBERED)
    local job = open_job(id)
    if not job or job.state ~= 'processing' then
      let_go(queue, id, true)
    elseif lapses > delivery_limit then
      fail_run(job, now, started, 'fail', '"delivery_limit: its consumer was lost ' .. digits(lapses) .. ' times"', true)
      let_go(queue, id, true)
    else
      append(returned, job)
    end
  end)
  give_back(queue, returned)
  return count
end

-- Some of the jobs of which it is remembered that consumers have lapsed may have been ended by kickq's own workers.
local function forget_lapses(queue)
  for _, id in ipairs(call('HRANDFIELD', SIDE .. 'lapses:' .. queue, 20)) do
    local state = attempt('HGET', JOB .. id, 'state')
    if not state or FINISHED[state] then
      call('HDEL', SIDE .. 'lapses:' .. queue, id)
    end
  end
end

-- What kickq's scheduler does

-- Queues what was to wait until now, also what no scheduler of kickq would look at any more: those look back 1.5 s. Returns whether
-- there may be more.
local function promote(now)
  local ids = call('ZRANGEBYSCORE', SCHEDULED, '-inf', digits(now), 'LIMIT', 0, MAX_PER_CALL)
  local used = 0
  for _, id in ipairs(ids) do
    if used > MAX_BYTES then
      return true
    end
    local job = open_job(id)
    if job and not holder_of(job.name, id) then
      used = used + #job.text
      call('RPUSH', QUEUE .. job.name, id)
      move(job, 'queued')
      set_member(job, 'state', '"queued"')
      publish('queued', job.name, document_of(job))
    end
    call('ZREM', SCHEDULED, id)
  end
  return #ids == MAX_PER_CALL
end

-- Deletes finished jobs whose time has come; or only takes them out of the schedule, as kickq does where its option purgeJobs is off.
-- Returns whether there may be more.
local function purge_finished(now, deletes)
  local ids = call('ZRANGEBYSCORE', PURGE, '-inf', digits(now), 'LIMIT', 0, MAX_PER_CALL)
  local used = 0
  for _, id in ipairs(ids) do
    if used > MAX_BYTES then
      return true
    end
    local state = attempt('HGET', JOB .. id, 'state')
    if deletes and FINISHED[state] then
      local job = open_job(id)
      call('DEL', JOB .. id)
      call('ZREM', TIME_INDEX, id)
      call('SREM', STATE .. state, id)
      if job then
        used = used + #job.text
        attempt('PUBLISH', ARGV[2] .. 'delete', '{"id":' .. member(job, 'id') .. ',"queue":' .. (member(job, 'name') or '""')
          .. ',"jobItem":' .. job.text .. ',"status":"' .. state .. '"}')
      end
    end
    call('ZREM', PURGE, id)
  end
  return #ids == MAX_PER_CALL
end

-- When a consumer should take again, if nothing wakes it: when the next job is due, the next consumer lapses, or its own lease ends.
local function next_event(queue, consumer, now, lease)
  local event = now + lease
  local due = call('ZRANGE', SCHEDULED, 0, 0, 'WITHSCORES')[2]
  event = math.min(event, tonumber(due) or event, other_lease_end(queue, consumer))
  return math.max(now + 1, math.ceil(event))
end

-- How far from now a scheduler of kickq looks for what is due, ms, before and after.
local LOOK = 1500

-- Whether a scheduler of kickq may have a delayed job in its memory, to queue it when it is due. What is not queued when that is long
-- past was lost with one.
local function scheduler_has(id, now)
  if call('ZSCORE', SCHEDULED, id) then
    return false
  end
  local job = open_job(id)
  local due = job and tonumber(member(job, 'scheduledFor'))
  return due ~= nil and due - LOOK <= now and now <= due + LOOK
end

-- Deletes a job of a queue with all that speaks of it, but for the list.
local function delete_job(queue, id, state)
  call('DEL', JOB .. id)
  call('SREM', STATE .. state, id)
  call('ZREM', TIME_INDEX, id)
  call('ZREM', SCHEDULED, id)
  call('ZREM', PURGE, id)
  call('HDEL', SIDE .. 'lapses:' .. queue, id)
end
