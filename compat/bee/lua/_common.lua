-- What the transitions of bee's jobs are made of. Each does what one script of bee's head does, in every field, index and event.
--
-- KEYS[1]  root of the side keys (compat/side.py)
-- KEYS[2]  what bee's keys begin with: `bee:`
-- ARGV[1]  now
-- ARGV[2]  the hive that speaks: `<host>:<pid>:<uuid>`; its worker for a queue is `<hive>:<queue>`
--
-- Where they differ from bee: nothing here stops half way. What bee's scripts abort at (a member without a record, options without
-- a ttl) is removed, or gets bee's own default. Numbers are left to Redis: 17 digits as arguments of commands, 14 inside JSON.

local BEE = KEYS[2]
local HIVE = ARGV[2]

-- How long a lock lasts without a heartbeat, ms; how often it is waited for again; how long that is remembered, s.
local LOCK = 45000
local WAITS = 3
local WAITS_REMEMBERED = 86400

-- For how long before now a heartbeat makes a bee one of those who share a queue, and after how long it is forgotten, ms.
local SHARING = 30000
local FORGOTTEN = 3600000

-- Options of a job that has none: ms, count, ms.
local TTL = 1800000
local RETRIES = 5
local RETRY_DELAY = 30000

-- Longest time that Redis takes for a time to live, ms.
local LONGEST = 2 ^ 53

-- All of bee's scripts abort where its options are missing; every hive writes them when it connects.
local function connect()
  if call('EXISTS', BEE .. 'str:hive:options') == 0 then
    call('SET', BEE .. 'str:hive:options', '{"log":false}')
  end
end

local function record_of(id)
  return BEE .. 'h:jobs:' .. id
end

-- One of a queue's sorted sets: queue, delayed, locks, expires, bees.
local function set_of(role, queue)
  return BEE .. 'ss:' .. role .. ':' .. queue
end

-- The jobs that a worker holds.
local function held_of(worker)
  return BEE .. 's:locks:' .. worker
end

-- The value of a JSON text; nil for none, and for what is no JSON.
local function decoded(text)
  if text then
    local fine, value = pcall(cjson.decode, text)
    return fine and value or nil
  end
end

-- What Celery knows of a job; nil for one that Celery has not made.
local function celery_part(text)
  local part = text and decoded(text)
  return type(part) == 'table' and part.as_of == nil and #part == 0 and part or nil
end

-- An option that is to be a number, as text; '' for another.
local function number_or_none(option)
  return tonumber(option) and tostring(option) or ''
end

-- A JSON text as Lua writes it; nil for what it can't read, or not write again.
local function encoded_again(text)
  local fine, again = pcall(function()
    return cjson.encode(cjson.decode(text))
  end)
  return fine and again or nil
end

-- A JSON list, empty for everything else.
local function list_of(text)
  local list = decoded(text)
  return type(list) == 'table' and list or {}
end

-- A job's options, with bee's own defaults where its end would fail without them.
local function options_of(text)
  local options = list_of(text)
  options.ttl = tonumber(options.ttl) and options.ttl or TTL
  options.retries = tonumber(options.retries) and options.retries or RETRIES
  options.retryDelay = tonumber(options.retryDelay) and options.retryDelay or RETRY_DELAY
  return options
end

-- Adds an event to a job's history. One that can't be read is left as it is.
local function note(now, id, event, more)
  local entry = more or {}
  entry.event, entry.timestamp, entry.hive = event, now, HIVE
  local text, history = call('HGET', record_of(id), 'history'), {}
  if text then
    history = decoded(text)
  end
  if type(history) == 'table' and (#history > 0 or next(history) == nil) then
    append(history, entry)
    call('HSET', record_of(id), 'history', cjson.encode(history))
  end
end

-- Tells all hives that know a queue. A user who may not publish goes without: a job's end must not fail half way for it.
local function publish(queue, message)
  message.queue = queue
  local fine, text = pcall(cjson.encode, message)
  if not fine then -- nested too deep to stand one level deeper
    message.job.data, message.job.result = {}, {}
    text = cjson.encode(message)
  end
  attempt('PUBLISH', BEE .. 'ch:q:' .. queue, text)
end

-- A job as bee gives it to clients and workers.
local function job_of(id)
  local found = call('HMGET', record_of(id), 'jid', 'parent', 'data', 'queue', 'worker', 'hash', 'status', 'options', 'submitted',
    'retries', 'tags', 'result', 'failedReason', 'duplicate', 'history', 'dependants')
  if not found[1] then
    return nil
  end
  local function value(text)
    local known = decoded(text)
    return known == nil and {} or known
  end
  local job = {
    jid = found[1], parent = found[2], data = value(found[3]), queue = found[4], worker = found[5], hash = found[6],
    status = found[7], options = value(found[8]), submitted = tonumber(found[9]) or found[9],
    retries = tonumber(found[10]) or found[10], tags = value(found[11]), result = value(found[12]), failedReason = found[13],
    duplicate = found[14], history = value(found[15]), dependants = value(found[16])
  }
  if job.duplicate then
    local original = call('HMGET', record_of(job.duplicate), 'status', 'result', 'failedReason')
    job.duplicate = {
      jid = job.duplicate, status = original[1], result = value(original[2]), failedReason = original[3]
    }
  end
  return job
end

-- Tells of a job's end: completed, failed, duplicate, canceled.
local function publish_end(queue, id, event)
  publish(queue, {jid = id, type = event, job = job_of(id)})
end

-- The score of a job in its queue: relative to the oldest one that waits, so that priority counts the more the longer that waits.
-- `turn`: when it came, now or before.
local function score_of(queue, options, turn)
  local first = call('ZRANGE', set_of('queue', queue), 0, 0, 'WITHSCORES')[2]
  local lowest = tonumber(first) or turn
  local score = turn - (turn - lowest) / 10 * math.min(tonumber(options.priority) or 0, 10)
  return score == score and math.abs(score) < math.huge and score or turn
end

-- Puts a job into its queue and wakes a worker. `turn`: when it came, if that was before now.
local function enqueue(now, queue, id, options, turn)
  call('ZADD', set_of('queue', queue), score_of(queue, options, math.min(turn or now, now)), id)
  call('HSET', record_of(id), 'status', 'queued')
  note(now, id, 'queued')
  local message = {jid = id, type = 'new'}
  local host = options.preferredHostname
  if type(host) == 'string' then
    attempt('PUBLISH', BEE .. 'ch:host:' .. host, cjson.encode({queue = queue, jid = id, type = 'new'}))
  end
  publish(queue, message)
end

-- Lets a job wait for its time.
local function delay(now, queue, id, ms)
  call('ZADD', set_of('delayed', queue), now + ms, id)
  note(now, id, 'delayed', {till = now + ms})
end

-- Lets those go on that waited for a job which has ended.
local function release(now, id)
  for _, dependant in ipairs(list_of(call('HGET', record_of(id), 'dependants'))) do
    if type(dependant) == 'string' then
      local needs = BEE .. 's:dependencies:' .. dependant
      attempt('SREM', needs, id)
      local found = attempt('HMGET', record_of(dependant), 'jid', 'status', 'queue', 'options')
      if found and found[1] and found[2] == 'new' and found[3] and call('EXISTS', needs) == 0 then
        local options = options_of(found[4])
        local ms = tonumber(options.delay) or 0
        if ms > 0 then
          delay(now, found[3], dependant, ms)
        else
          enqueue(now, found[3], dependant, options)
        end
      end
    end
  end
end

-- Notes that a job has ended, for as long as its options say; tells of it, and lets those go on that waited for it.
local function finish(now, queue, id, options, status)
  call('ZADD', set_of('expires', queue), now + tonumber(options.ttl), id)
  publish_end(queue, id, status)
  release(now, id)
end

-- A job has failed for good.
local function fail(now, queue, id, options, message)
  call('HSET', record_of(id), 'failedReason', message, 'status', 'failed')
  note(now, id, 'failed', {message = message})
  finish(now, queue, id, options, 'failed')
end

-- Takes a job from the worker that ran it.
local function unlock(queue, id, worker)
  call('ZREM', set_of('locks', queue), id)
  call('SREM', held_of(worker), id)
end

-- Whether a worker of this hive runs a job, of which nobody has taken it, cancelled it or given it up.
local function is_held(queue, id)
  local worker = HIVE .. ':' .. queue
  local found = call('HMGET', record_of(id), 'worker', 'status')
  return found[1] == worker and found[2] == 'running' and call('SISMEMBER', held_of(worker), id) == 1
end

-- Sets a record to vanish, and takes it from all that names it.
local function forget_job(queue, id, ttl)
  local found = call('HMGET', record_of(id), 'tags', 'parent')
  call('PEXPIRE', record_of(id), string.format('%.0f', math.max(0, math.min(ttl, LONGEST))))
  call('ZREM', set_of('expires', queue), id)
  for _, tag in ipairs(list_of(found[1])) do
    if type(tag) == 'string' or type(tag) == 'number' then
      call('SREM', BEE .. 's:tags:' .. tag, id)
    end
  end
  if found[2] then
    call('SREM', BEE .. 's:' .. found[2] .. ':children', id)
  end
end

-- The jobs that die with one: all that have its hash, if it is among them. The second result is the key of their list.
--
-- bee also lets the original die with a duplicate that is cancelled; one that has yet to end stays here, or it would be lost.
local function mourners(queue, id, hash)
  local key = hash and BEE .. 'l:hashes:' .. queue .. ':' .. hash
  local members = key and attempt('LRANGE', key, 0, -1) or {}
  for index, member in ipairs(members) do
    if member == id then
      local head = index > 1 and call('HGET', record_of(members[1]), 'status')
      if head == 'new' or head == 'queued' or head == 'running' or head == 'retried' then
        call('LREM', key, 0, id)
        break
      end
      return members, key
    end
  end
  return {id}
end

-- Sets a job that has expired or was cancelled to vanish after its time, and with it all that have its hash.
local function die(id)
  local found = call('HMGET', record_of(id), 'queue', 'hash', 'options')
  local queue, ttl = found[1] or '', math.floor(tonumber(options_of(found[3]).ttl))
  local members, key = mourners(queue, id, found[2])
  for _, member in ipairs(members) do
    forget_job(queue, member, ttl)
  end
  if key then
    call('DEL', key)
  end
end

-- Cancels a job and its children, whatever their state. Whether there was one.
local function cancel(now, id, seen)
  local found = attempt('HMGET', record_of(id), 'jid', 'queue', 'status', 'worker')
  if seen[id] or not (found and found[1] and found[2]) then
    return false
  end
  seen[id] = true
  local queue = found[2]
  if found[3] == 'running' then
    unlock(queue, id, found[4] or '')
  else
    call('ZREM', set_of('delayed', queue), id)
    call('ZREM', set_of('queue', queue), id)
  end
  note(now, id, 'canceled')
  call('HSET', record_of(id), 'status', 'canceled')
  die(id)
  for _, child in ipairs(attempt('SMEMBERS', BEE .. 's:' .. id .. ':children') or {}) do
    cancel(now, child, seen)
  end
  publish_end(queue, id, 'canceled')
  release(now, id)
  return true
end

-- Queues the jobs whose time has come, at most so many. How many there were.
local function promote(now, queue, limit)
  local delayed = set_of('delayed', queue)
  local due = call('ZRANGEBYSCORE', delayed, 0, now, 'LIMIT', 0, limit)
  for _, id in ipairs(due) do
    local found = attempt('HMGET', record_of(id), 'jid', 'status', 'options')
    if found and found[1] and (found[2] == 'new' or found[2] == 'retried') then
      enqueue(now, queue, id, options_of(found[3]))
    end
    call('ZREM', delayed, id)
  end
  return #due
end

-- Gives up on workers whose locks have expired four times, at most so many jobs. How many locks had expired.
local function expire_locks(now, queue, limit)
  local locks = set_of('locks', queue)
  local expired = call('ZRANGEBYSCORE', locks, '-inf', now, 'LIMIT', 0, limit)
  for _, id in ipairs(expired) do
    local found = attempt('HMGET', record_of(id), 'jid', 'status', 'worker', 'retries', 'options')
    local worker = found and found[3] or ''
    if not (found and found[1] and found[2] == 'running') then
      unlock(queue, id, worker)
    else
      local waits = BEE .. 'str:lock-waits:' .. worker .. ':' .. id
      local count = attempt('INCR', waits)
      if not count then -- it is no number: begin anew
        call('SET', waits, 1)
        count = 1
      end
      call('EXPIRE', waits, WAITS_REMEMBERED)
      if count <= WAITS then
        call('ZADD', locks, now + LOCK, id)
      else
        local options, retries = options_of(found[5]), tonumber(found[4]) or 0
        note(now, id, 'expiredLock', {old_worker = worker})
        unlock(queue, id, worker)
        if retries >= tonumber(options.retries) then
          fail(now, queue, id, options, 'no more retries available')
        else
          call('HSET', record_of(id), 'retries', retries + 1, 'status', 'retried')
          enqueue(now, queue, id, options)
        end
      end
    end
  end
  return #expired
end

-- Lets jobs go that have ended long enough ago, at most so many. How many there were.
local function expire_jobs(now, queue, limit)
  local expires = set_of('expires', queue)
  local over = call('ZRANGEBYSCORE', expires, '-inf', now, 'LIMIT', 0, limit)
  for _, id in ipairs(over) do
    local found = attempt('HMGET', record_of(id), 'jid', 'status')
    if found and found[1] and (found[2] == 'completed' or found[2] == 'failed' or found[2] == 'expired') then
      call('HSET', record_of(id), 'status', 'expired')
      die(id)
    end
    call('ZREM', expires, id)
  end
  return #over
end

-- bee's clockwork for one queue, at most so many jobs of each kind. Whether there may be more to do at once.
local function run_timers(now, queue, limit)
  local jobs, locks = expire_jobs(now, queue, limit), expire_locks(now, queue, limit)
  return math.max(jobs, locks, promote(now, queue, limit)) == limit
end

-- A worker says that it lives, and renews the locks of all that it holds.
local function beat(now, queue)
  local worker, bees = HIVE .. ':' .. queue, set_of('bees', queue)
  call('ZREMRANGEBYSCORE', bees, '-inf', now - FORGOTTEN)
  call('ZADD', bees, now, worker)
  for _, id in ipairs(call('SMEMBERS', held_of(worker))) do
    if is_held(queue, id) then
      call('ZADD', set_of('locks', queue), now + LOCK, id)
      call('DEL', BEE .. 'str:lock-waits:' .. worker .. ':' .. id)
    else
      call('SREM', held_of(worker), id)
    end
  end
end

-- Forgets consumers of ours whose lease has ended, once bee's own clock has taken from them what they held.
local function end_leases(now, queue, limit)
  for _, hive in ipairs(call('ZRANGEBYSCORE', SIDE .. 'consumers:' .. queue, '-inf', now, 'LIMIT', 0, limit)) do
    if call('EXISTS', held_of(hive .. ':' .. queue)) == 0 then
      end_lease(queue, hive)
    end
  end
end
