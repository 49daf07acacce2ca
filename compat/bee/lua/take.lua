-- Gives a consumer up to n jobs, in order, and up to so many bytes of data, but one job at least. First runs bee's clockwork for the
-- queue, and beats for the consumer: its lease begins anew.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue
-- ARGV[4]   n; 0 only runs the clockwork and beats
-- ARGV[5]   lease, ms from now
-- ARGV[6]   how often a job of a lost consumer is given out again: bee's retries decide that
-- ARGV[7]   bytes of data that the reply may have
-- ARGV[8]   '1' if jobs are hashed: who has the hash of another job becomes its duplicate, and is not run
-- ARGV[9]   '' for jobs of all tasks, else the names of tasks follow
-- ARGV[10…] the names of tasks
-- Result    {now, when to take again, {tasks of some jobs that were passed over}, and for each job
--           {id, score, data, Celery's part, times popped, retries, most retries, priority}}
--
-- Of what stands in the queue, members without a record and jobs that have ended already are removed; a job whose data Lua can't
-- read fails; what can't be told apart from a job of somebody else's is passed over.

local queue, room = ARGV[3], math.min(tonumber(ARGV[4]), MAX_PER_CALL)
local lease, space, hashing = tonumber(ARGV[5]), tonumber(ARGV[7]), ARGV[8] == '1'
local waiting, worker = set_of('queue', queue), HIVE .. ':' .. queue

local SHORT = {['"'] = '\\"', ['\\'] = '\\\\', ['\b'] = '\\b', ['\f'] = '\\f', ['\n'] = '\\n', ['\r'] = '\\r', ['\t'] = '\\t'}

-- Longest data that is hashed, bytes, and longest of a job that ended which is compared: it takes the server some milliseconds.
local MOST_HASHED = 65536
local MOST_COMPARED = 4096

local ENDED = {completed = true, failed = true, duplicate = true, canceled = true, expired = true}

-- A number as JavaScript writes one that it has read from Lua: the shortest form of its first 14 digits.
local function number_text(value)
  local sign, first, more, exponent = string.match(string.format('%.13e', value), '^(-?)(%d)%.(%d+)e([+-]%d+)$')
  local digits = string.gsub(first .. more, '0+$', '')
  if digits == '' then
    return '0'
  end
  local point = tonumber(exponent) + 1
  if point > 21 or point <= -6 then
    local rest = string.sub(digits, 2)
    return string.format('%s%s%se%+d', sign, first, rest == '' and '' or '.' .. rest, point - 1)
  elseif point <= 0 then
    return sign .. '0.' .. string.rep('0', -point) .. digits
  elseif point >= #digits then
    return sign .. digits .. string.rep('0', point - #digits)
  end
  return sign .. string.sub(digits, 1, point) .. '.' .. string.sub(digits, point + 1)
end

local function string_text(value)
  return '"' .. string.gsub(value, '[%c"\\]', function(char)
    return SHORT[char] or char == '\127' and char or string.format('\\u%04x', string.byte(char))
  end) .. '"'
end

-- Names of fields as JavaScript orders them: those that are indexes first, by number; then the others as Lua has written them.
local function names_of(object)
  local indexes, others = {}, {}
  for name in pairs(object) do
    local is_index = string.match(name, '^[1-9]%d*$') and #name <= 10 and tonumber(name) < 2 ^ 32 - 1 or name == '0'
    append(is_index and indexes or others, name)
  end
  table.sort(indexes, function(one, other)
    return tonumber(one) < tonumber(other)
  end)
  for _, name in ipairs(others) do
    append(indexes, name)
  end
  return indexes
end

-- A value as JavaScript's JSON.stringify writes what it has read from Lua.
local function script_text(value)
  if type(value) == 'string' then
    return string_text(value)
  elseif type(value) == 'number' then
    return number_text(value)
  elseif type(value) ~= 'table' then
    return value == cjson.null and 'null' or tostring(value)
  end
  local parts = {}
  if #value > 0 then
    for _, each in ipairs(value) do
      append(parts, script_text(each))
    end
    return '[' .. table.concat(parts, ',') .. ']'
  end
  for _, name in ipairs(names_of(value)) do
    append(parts, string_text(name) .. ':' .. script_text(value[name]))
  end
  return '{' .. table.concat(parts, ',') .. '}'
end

-- The hash that a bee gives a job where its owner has not said how.
local function hash_of(data)
  return redis.sha1hex(script_text(data))
end

-- Whether bees give jobs of this queue that hash. What they do stands in the jobs that ended last, without those that Celery made.
local function look_for_hashes()
  local seen, has_hash = false, false
  for _, id in ipairs(call('ZREVRANGE', set_of('expires', queue), 0, 7)) do
    local found = attempt('HMGET', record_of(id), 'jid', 'hash', 'ferryman')
    if found and found[1] and not found[3] then
      local hash = found[2]
      if hash and call('HSTRLEN', record_of(id), 'data') <= MOST_COMPARED then
        local data = decoded(call('HGET', record_of(id), 'data'))
        if data == nil or hash_of(data) ~= hash then
          return false
        end
      end
      seen, has_hash = true, has_hash or hash
    end
  end
  return has_hash or not seen
end

local hashes

local function uses_hashes()
  if hashes == nil then
    hashes = hashing and look_for_hashes()
  end
  return hashes
end

local function is_wanted(part)
  if ARGV[9] == '' then
    return true
  end
  local task = part and part.task or queue
  for i = 10, #ARGV do
    if ARGV[i] == task then
      return true
    end
  end
  return false
end

-- What a take needs of a job, but its data; nil for what is to be passed over. The second result: whether it is to leave the queue;
-- the third: the task of one that the consumer does not know.
local function read_job(id, score)
  local record = record_of(id)
  local found = attempt('HMGET', record, 'jid', 'queue', 'status', 'options', 'history', 'retries', 'hash', 'ferryman')
  if not found then
    return nil
  elseif not found[1] or ENDED[found[3]] then
    return nil, true
  end
  local history = decoded(found[5] or '{}')
  local is_readable = type(decoded(found[4])) == 'table' and type(history) == 'table'
  if found[2] ~= queue or found[3] == 'running' or not is_readable then
    return nil
  end
  local part = celery_part(found[8])
  if not is_wanted(part) then
    return nil, false, part and type(part.task) == 'string' and part.task or queue
  end
  local job = {
    id = id, score = score, options = options_of(found[4]), retries = found[6] or '0', hash = found[7],
    part = part and found[8] or '', popped = 1
  }
  for _, event in ipairs(history) do
    job.popped = job.popped + (type(event) == 'table' and event.event == 'popped' and 1 or 0)
  end
  job.bytes = #job.part + call('HSTRLEN', record, 'data')
  return job
end

-- Gives a job its hash. Whether another has it already: then the job has become a duplicate.
local function join(now, job)
  local hash = hash_of(decoded(job.data))
  local list = BEE .. 'l:hashes:' .. queue .. ':' .. hash
  local head = attempt('LINDEX', list, 0)
  if head == nil then -- the key holds something else
    return false
  end
  local status = head and call('HGET', record_of(head), 'status')
  if head and (job.part ~= '' or not status or status == 'canceled' or status == 'expired') then
    return false
  end
  call('HSET', record_of(job.id), 'hash', hash)
  call('RPUSH', list, job.id)
  if not head then
    return false
  end
  unlock(queue, job.id, worker)
  call('HSET', record_of(job.id), 'duplicate', head, 'status', 'duplicate')
  note(now, job.id, 'duplicate', {worker = worker, duplicateJid = head})
  publish_end(queue, job.id, 'duplicate')
  release(now, job.id)
  return true
end

local function pop(now, job)
  call('HSET', record_of(job.id), 'worker', worker, 'status', 'running')
  note(now, job.id, 'popped')
  call('ZADD', set_of('locks', queue), now + LOCK, job.id)
  call('SADD', held_of(worker), job.id)
  call('ZREM', waiting, job.id)
end

-- How many jobs the consumer may have: bees that live share a queue.
local function share(now)
  local queued = call('ZCARD', waiting)
  local bees = call('ZCOUNT', set_of('bees', queue), now - SHARING, now)
  return bees > 0 and math.min(room, math.ceil(queued / bees)) or room
end

-- Gives the consumer a job, unless it can't be run or becomes a duplicate. What the reply has of it, or nil.
local function deliver(now, job)
  job.data = call('HGET', record_of(job.id), 'data')
  if not job.data or not encoded_again(job.data) then
    fail(now, queue, job.id, job.options, 'its data is not JSON that bee can read')
    call('ZREM', waiting, job.id)
    return nil
  end
  local joins = not job.hash and #job.data <= MOST_HASHED and uses_hashes()
  pop(now, job)
  if joins and join(now, job) then
    return nil
  end
  return {
    job.id, job.score, job.data, job.part, job.popped, job.retries, number_or_none(job.options.retries),
    number_or_none(job.options.priority)
  }
end

-- Takes jobs from the head of the queue. Returns them, and whether it has stopped before there was no room or no job.
local function take_jobs(now)
  local taken, from, looked, passed, used = {}, 0, 0, 0, 0
  local most = share(now)
  while #taken < most and looked < MAX_PER_CALL do
    local heads = call('ZRANGE', waiting, from, from + 99, 'WITHSCORES')
    if #heads == 0 then
      return taken, false
    end
    for i = 1, #heads, 2 do
      local job, leaves, task = read_job(heads[i], heads[i + 1])
      looked = looked + 1
      if leaves then
        call('ZREM', waiting, heads[i])
      elseif not job then
        from, passed = from + 1, passed + 1
        if task then
          note_unknown(task)
        end
      elseif #taken > 0 and used + job.bytes > space then
        return taken, true
      else
        append(taken, deliver(now, job))
        used = used + job.bytes
      end
      if #taken >= most or looked >= MAX_PER_CALL then
        break
      end
    end
    if passed == looked and looked == MAX_PER_CALL / 2 then
      -- Jobs of others stand before all: what is behind them gets its turn by chance.
      from = from + now * 7919 % math.max(1, call('ZCARD', waiting) - from)
    end
  end
  return taken, looked >= MAX_PER_CALL and passed < looked
end

-- When this consumer should take again, if nothing wakes it.
local function next_event(now, is_full)
  local event = now + lease
  for _, role in ipairs({'delayed', 'locks'}) do
    local first = call('ZRANGE', set_of(role, queue), 0, 0, 'WITHSCORES')[2]
    event = math.min(event, first and math.max(now, math.ceil(tonumber(first))) or event)
  end
  if not is_full and call('EXISTS', waiting) == 1 then
    event = math.min(event, now + 1000) -- others have their share of it now, and may never take it
  end
  return event
end

return reply_of(function()
  local now = clock()
  first_write()
  connect()
  lease_to(queue, HIVE, now + lease)
  beat(now, queue)
  local more = run_timers(now, queue, MAX_PER_CALL)
  end_leases(now, queue, MAX_PER_CALL)
  local taken, is_cut = {}, false
  if room > 0 then
    taken, is_cut = take_jobs(now)
  end
  local event = (more or is_cut) and now or next_event(now, #taken >= room)
  local reply = {now, event, unknown}
  for _, job in ipairs(taken) do
    append(reply, job)
  end
  return reply
end)
