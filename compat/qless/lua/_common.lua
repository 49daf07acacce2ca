-- Keys and pieces of qless and reqless that the transitions share. Definitions only; compat/qless/live.py builds the calls.
--
-- KEYS[1] of every transition is the root of the side keys, KEYS[2] what all keys of qless begin with ("ql:").
-- ARGV[1] is the time in ms or '' for the server's clock; ARGV[2] the core beside which we work: 'unified' (qless-py 0.10 to 0.11.4),
-- 'final' (qless-core of late 2013 to 2024), 'reqless', or '' to tell it from the keys.
--
-- A job stands in one zset of its queue: work (it waits), scheduled, depends, throttled, or locks (it runs); or it has failed
-- (list f:<group>) or is complete (zset completed). Its hash says the same by the field state. Times are seconds as doubles; they
-- and all other numbers go into commands as numbers, so that each server writes them as it does for qless itself.

local QL = KEYS[2]
local RECORD = QL .. 'j:'
local QUEUE = QL .. 'q:'

local DAY = 86400

-- This moment in seconds, as qless counts.
local function seconds()
  if ARGV[1] ~= '' then
    return tonumber(ARGV[1]) / 1000
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

-- A thousandth of a ms: more than a double of seconds, or what is made of it here, may be wrong.
local INEXACT = 0.001

-- A moment of qless in ms, never one that has not come yet.
local function in_ms(moment)
  return math.floor(moment * 1000 + INEXACT)
end

-- A moment at which something is due, in ms, never one before.
local function due_ms(moment)
  return math.ceil(moment * 1000 - INEXACT)
end

local function zset(queue, index)
  return QUEUE .. queue .. '-' .. index
end

-- The table in a JSON text; an empty one for what is none.
local function table_in(text)
  local fine, value = pcall(cjson.decode, text or '')
  return fine and type(value) == 'table' and value or {}
end

-- A list as JSON; Lua writes an empty one as an object, and so does qless.
local function json_list(list)
  return cjson.encode(list)
end

local function setting(name, default)
  return tonumber(call('HGET', QL .. 'config', name) or nil) or default
end

local function setting_of(queue, name, default)
  return tonumber(call('HGET', QL .. 'config', queue .. '-' .. name) or nil) or setting(name, default)
end

-- Fields of a job's hash; nil where there is no job: no hash, something else than a hash, or one without a jid.
local function fields_of(id, ...)
  local values = attempt('HMGET', RECORD .. id, 'jid', ...)
  if not values or not values[1] then
    return nil
  end
  return unpack(values, 2, select('#', ...) + 1)
end

-- Which core has written a job, as far as that shows; 'ours' for one that ferryman has put, which proves nothing.
local function core_of_job(id)
  local values = attempt('HMGET', RECORD .. id, 'jid', 'throttles', 'spawned_from_jid', 'scheduled', 'ferryman')
  if not values or not values[1] then
    return nil
  end
  if values[5] then
    return nil
  end
  return values[2] and 'reqless' or (values[3] or values[4]) and 'final' or 'unified'
end

local core_memo = {}

-- The core of this keyspace, told from a few of its jobs: of this queue, of those done last, of other queues. Where nothing tells,
-- it is 'unified'.
local function core(queue)
  if ARGV[2] ~= '' then
    return ARGV[2]
  end
  if core_memo.found then
    return core_memo.found
  end
  local found
  local function look(command, key, ...)
    for _, id in ipairs(not found and attempt(command, key, ...) or {}) do
      found = found or core_of_job(id)
    end
  end
  local function look_into(name)
    if attempt('EXISTS', QL .. 'th:ql:q:' .. name, QL .. 'th:ql:q:' .. name .. '-locks', zset(name, 'throttled')) ~= 0 then
      found = 'reqless'
    end
    look('ZREVRANGE', zset(name, 'work'), 0, 0)
    look('ZRANGE', zset(name, 'locks'), 0, 1)
    look('ZRANGE', zset(name, 'scheduled'), 0, 0)
    look('ZRANGE', zset(name, 'depends'), 0, 0)
  end
  if queue then
    look_into(queue)
  end
  look('ZREVRANGE', QL .. 'completed', 0, 1)
  for _, name in ipairs(not found and attempt('ZREVRANGE', QL .. 'queues', 0, 9) or {}) do
    if not found then
      look_into(name)
    end
  end
  for _, group in ipairs(not found and attempt('SRANDMEMBER', QL .. 'failures', 3) or {}) do
    look('LRANGE', QL .. 'f:' .. group, 0, 1)
  end
  core_memo.found = found or 'unified'
  return core_memo.found
end

local function is_reqless(queue)
  return core(queue) == 'reqless'
end

-- Adds an entry to a job's history. Since late 2013 it keeps the first and the newest ones only.
local function log_event(now, queue, id, what, about)
  local key = RECORD .. id .. '-history'
  local most = core(queue) ~= 'unified' and setting('max-job-history', 100) or 0
  if most > 0 and most ~= 2 and call('LLEN', key) - 1 > most - 2 then
    local first = call('LPOP', key)
    call('LTRIM', key, 2 - most, -1)
    if first then
      call('LPUSH', key, first)
    end
  end
  call('RPUSH', key, cjson.encode({math.floor(now), what, about}))
end

local function publish(channel, message)
  call('PUBLISH', QL .. channel, type(message) == 'table' and cjson.encode(message) or message)
end

-- Tells those who watch this job.
local function publish_if_tracked(channel, id)
  if call('ZSCORE', QL .. 'tracked', id) then
    publish(channel, id)
  end
end

-- A worker has lost its lock: it is told so itself, and so is everybody else.
local function publish_lost_lock(id, worker)
  local message = {jid = id, event = 'lock_lost', worker = worker}
  publish('w:' .. worker, message)
  publish('log', message)
end

local function day_of(moment)
  return moment - moment % DAY
end

local function counters(moment, queue)
  return QL .. 's:stats:' .. day_of(moment) .. ':' .. queue
end

local function add_to_counter(moment, queue, name, by)
  call('HINCRBY', counters(moment, queue), name, by)
end

-- The cell of a histogram: seconds, then minutes, hours, days.
local function cell_of(value)
  value = math.floor(value)
  if value < 60 then
    return 's' .. value
  elseif value < 3600 then
    return 'm' .. math.floor(value / 60)
  elseif value < DAY then
    return 'h' .. math.floor(value / 3600)
  end
  return 'd' .. math.floor(value / DAY)
end

-- Adds a duration to the statistics of this day: a running mean and sum of squares, and a histogram.
local function measure(kind, now, queue, value)
  local key = QL .. 's:' .. kind .. ':' .. day_of(now) .. ':' .. queue
  local known = call('HMGET', key, 'total', 'mean', 'vk')
  local total, mean, vk = tonumber(known[1] or nil) or 0, tonumber(known[2] or nil) or 0, tonumber(known[3] or nil) or 0
  total = total + 1
  if total == 1 then
    mean, vk = value, 0
  else
    local before = mean
    mean = before + (value - before) / total
    vk = vk + (value - mean) * (value - before)
  end
  call('HINCRBY', key, cell_of(value), 1)
  call('HMSET', key, 'total', total, 'mean', mean, 'vk', vk)
end

-- Where a job stands in work: by priority, and by time among equals.
local function work_score(now, priority)
  return (tonumber(priority or nil) or 0) - now / 10000000000
end

local function into_work(now, queue, priority, id)
  call('ZADD', zset(queue, 'work'), work_score(now, priority), id)
end

local function out_of(queue, id, ...)
  for _, index in ipairs({...}) do
    call('ZREM', zset(queue, index), id)
  end
end

local function register_queue(now, queue)
  if not call('ZSCORE', QL .. 'queues', queue) then
    call('ZADD', QL .. 'queues', now, queue)
  end
end

-- Tags

local function add_tag(now, tag, id)
  call('ZADD', QL .. 't:' .. tag, now, id)
  call('ZINCRBY', QL .. 'tags', 1, tag)
end

local function remove_tag(queue, tag, id)
  call('ZREM', QL .. 't:' .. tag, id)
  if is_reqless(queue) and call('EXISTS', QL .. 't:' .. tag) == 0 then
    call('ZREM', QL .. 'tags', tag)
  else
    call('ZINCRBY', QL .. 'tags', -1, tag)
  end
end

local function remove_tags(queue, id, tags)
  for _, tag in ipairs(table_in(tags)) do
    if type(tag) == 'string' or type(tag) == 'number' then
      remove_tag(queue, tag, id)
    end
  end
end

-- Throttles of reqless

-- The throttle that all jobs of a queue need.
local function own_throttle(queue)
  return QUEUE .. queue
end

local function slots(throttle)
  return QL .. 'th:' .. throttle .. '-locks'
end

local function throttled_by(throttle)
  return QL .. 'th:' .. throttle .. '-pending'
end

-- How many jobs may hold a throttle at once; 0 without limit.
local function maximum_of(throttle)
  return tonumber(call('HGET', QL .. 'th:' .. throttle, 'maximum') or nil) or 0
end

local function has_room(throttle)
  local most = maximum_of(throttle)
  return most <= 0 or call('ZCARD', slots(throttle)) < most
end

-- The throttles of a job, by their text in its hash.
local function throttles_in(text)
  local names = {}
  for _, name in ipairs(table_in(text)) do
    if type(name) == 'string' or type(name) == 'number' then
      append(names, name)
    end
  end
  return names
end

-- The first of a job's throttles that is full; nil if it may run.
local function full_one(throttles)
  for _, throttle in ipairs(throttles) do
    if not has_room(throttle) then
      return throttle
    end
  end
end

local function take_slots(throttles, id)
  for _, throttle in ipairs(throttles) do
    call('ZADD', slots(throttle), 1, id)
  end
end

-- A job has to wait until a throttle has room.
local function throttle_job(now, queue, throttle, id)
  call('ZADD', throttled_by(throttle), now, id)
  call('ZADD', zset(queue, 'throttled'), now, id)
  if call('HGET', RECORD .. id, 'state') ~= 'throttled' then -- which it keeps in work
    call('HSET', RECORD .. id, 'state', 'throttled')
    log_event(now, queue, id, 'throttled', {queue = queue})
  end
end

local MOST_RELEASED = 10

-- A job gives its slots back, or its place among those that wait for one; who waits longest gets them, and waits in work now.
local function release_throttles(now, id, text)
  for _, throttle in ipairs(throttles_in(text)) do
    local pending = throttled_by(throttle)
    if call('ZREM', slots(throttle), id) == 0 then
      call('ZREM', pending, id)
    end
    local most = maximum_of(throttle)
    local room = most <= 0 and MOST_RELEASED or most - call('ZCARD', slots(throttle))
    if room > 0 then
      for _, other in ipairs(call('ZRANGE', pending, 0, room - 1)) do
        local queue, priority = fields_of(other, 'queue', 'priority')
        if queue then
          into_work(now, queue, priority, other)
          out_of(queue, other, 'throttled')
        end
        call('ZREM', pending, other)
      end
    end
  end
end

-- Failures

local function list_as_failed(group, id)
  call('SADD', QL .. 'failures', group)
  call('LPUSH', QL .. 'f:' .. group, id)
end

local function unlist_as_failed(group, id)
  call('LREM', QL .. 'f:' .. group, 0, id)
  if call('LLEN', QL .. 'f:' .. group) == 0 then
    call('SREM', QL .. 'failures', group)
  end
end

-- A job that had failed is put again: it goes from its group, and from what its queue has failed on that day.
local function no_longer_failed(id, failure, queue)
  local known = table_in(failure)
  local group, when = known.group, tonumber(known.when)
  if type(group) == 'string' then
    unlist_as_failed(group, id)
  end
  if when then
    add_to_counter(when, queue, 'failed', -1)
  end
end

local function exhausted_in(queue)
  return 'Job exhausted retries in queue "' .. queue .. '"'
end

-- All attempts of a job are used up. `failure`: what is known of the last one; nil: the worker was lost.
local function fail_exhausted(now, queue, id, throttles, failure)
  local group = failure and failure.group or 'failed-retries-' .. queue
  log_event(now, queue, id, 'failed', {group = group})
  failure = failure or {
    group = group, message = exhausted_in(queue), when = now, worker = '',
  }
  call('HMSET', RECORD .. id, 'state', 'failed', 'worker', '', 'expires', '')
  call('HSET', RECORD .. id, 'failure', cjson.encode(failure))
  list_as_failed(group, id)
  out_of(queue, id, 'work', 'locks', 'scheduled')
  if throttles then
    release_throttles(now, id, throttles)
  end
  if core(queue) ~= 'unified' then
    add_to_counter(now, queue, 'failures', 1)
    add_to_counter(now, queue, 'failed', 1)
  end
end

-- A job that nobody runs has failed: it can't be run, or is not to be.
local function fail_unrun(now, queue, id, group, message)
  local throttles = fields_of(id, 'throttles')
  log_event(now, queue, id, 'failed', {worker = '', group = group})
  local failure = {group = group, message = message, when = math.floor(now), worker = ''}
  call('HMSET', RECORD .. id, 'state', 'failed', 'worker', '', 'expires', '', 'failure', cjson.encode(failure))
  list_as_failed(group, id)
  add_to_counter(now, queue, 'failures', 1)
  add_to_counter(now, queue, 'failed', 1)
  out_of(queue, id, 'work', 'scheduled', 'throttled')
  if throttles then
    release_throttles(now, id, throttles)
  end
  publish('log', {jid = id, event = 'failed', worker = '', group = group, message = message})
  publish_if_tracked('failed', id)
end

-- Dependencies

-- Those of some jobs that exist and are not complete: whom another one can wait for.
local function open_ones(ids)
  local open = {}
  for _, id in ipairs(ids) do
    local state = fields_of(id, 'state')
    if state and state ~= 'complete' then
      append(open, id)
    end
  end
  return open
end

local function wait_for(id, others)
  for _, other in ipairs(others) do
    call('SADD', RECORD .. other .. '-dependents', id)
    call('SADD', RECORD .. id .. '-dependencies', other)
  end
end

-- A job waits for nobody any more.
local function stop_waiting(now, id, keeps_delay)
  local queue, priority, due = fields_of(id, 'queue', 'priority', 'scheduled')
  if not queue then
    return
  end
  if due and keeps_delay then
    call('ZADD', zset(queue, 'scheduled'), due, id)
    call('HSET', RECORD .. id, 'state', 'scheduled')
    call('HDEL', RECORD .. id, 'scheduled')
  else
    into_work(now, queue, priority, id)
    call('HSET', RECORD .. id, 'state', 'waiting')
  end
  out_of(queue, id, 'depends')
end

-- Jobs that run

local function locks_of(queue)
  return zset(queue, 'locks')
end

local function jobs_of(worker)
  return QL .. 'w:' .. worker .. ':jobs'
end

local function heartbeat_of(queue)
  return setting_of(queue, 'heartbeat', 60)
end

-- The fields of a job that a worker runs in this queue; nil if it does not, or not any more.
local function held_by_worker(queue, worker, id, ...)
  local values = attempt('HMGET', RECORD .. id, 'jid', 'state', 'worker', 'queue', ...)
  if not values or not values[1] or values[2] ~= 'running' or values[3] ~= worker or values[4] ~= queue then
    return nil
  end
  return {unpack(values, 5, select('#', ...) + 4)}
end

-- How many of a queue's locks are looked at for jobs whose worker was warned: those end first.
local WARNED = 200

-- The jobs that a worker runs in a queue, at most `limit`. Its own set lacks those whose lock was lost but not yet given away.
local function running_jobs(queue, worker, limit)
  local ids, seen = {}, {}
  local function add(candidates)
    for _, id in ipairs(candidates) do
      if #ids < limit and not seen[id] and held_by_worker(queue, worker, id) then
        seen[id] = true
        append(ids, id)
      end
    end
  end
  add(call('ZRANGE', jobs_of(worker), 0, -1))
  add(call('ZRANGE', locks_of(queue), 0, WARNED - 1))
  return ids
end

-- The moment of a job's last put, by its history; nil if that does not tell.
local function put_at(id)
  local entries = attempt('LRANGE', RECORD .. id .. '-history', -100, -1) or {}
  for i = #entries, 1, -1 do
    local entry = table_in(entries[i])
    if entry[2] == 'put' and tonumber(entry[1]) then
      return tonumber(entry[1])
    end
  end
end

-- What is due

-- Moves due jobs to work, at most `limit`, the earliest first. What has no record was deleted by somebody, and goes.
local function promote(now, queue, limit)
  local ids = limit > 0 and call('ZRANGEBYSCORE', zset(queue, 'scheduled'), '-inf', now, 'LIMIT', 0, limit) or {}
  for _, id in ipairs(ids) do
    local priority = fields_of(id, 'priority')
    if priority then
      into_work(now, queue, priority, id)
      call('HSET', RECORD .. id, 'state', 'waiting')
    end
    call('ZREM', zset(queue, 'scheduled'), id)
  end
  return #ids
end

-- Makes the jobs that recurring ones are due for, at most `limit` in all. Returns how many.
local function spawn(now, queue, limit)
  local made = 0
  if limit <= 0 then
    return made
  end
  local key = zset(queue, 'recur')
  local heads = call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, limit)
  for _, template in ipairs(heads) do
    local found = call(
      'HMGET', QL .. 'r:' .. template, 'klass', 'data', 'priority', 'tags', 'retries', 'interval', 'backlog', 'throttles')
    local klass, data, priority, tags, retries, interval, backlog, throttles = unpack(found)
    interval = tonumber(interval or nil)
    if not klass or not interval then
      call('ZREM', key, template) -- its record was deleted by somebody
    else
      local due = math.floor(tonumber(call('ZSCORE', key, template)))
      backlog = tonumber(backlog or nil) or 0
      if backlog > 0 then
        local behind = math.ceil((now - due) / interval)
        if behind > backlog then
          due = due + (behind - backlog) * interval
        end
      end
      while due <= now and made < limit do
        local count = call('HINCRBY', QL .. 'r:' .. template, 'count', 1)
        local id = template .. '-' .. count
        for _, tag in ipairs(table_in(tags)) do
          add_tag(now, tag, id)
        end
        local fields = {
          'jid', id, 'klass', klass, 'data', data, 'priority', priority, 'tags', tags, 'state', 'waiting', 'worker', '',
          'expires', 0, 'queue', queue, 'retries', retries, 'remaining', retries, 'time', string.format('%.20f', due),
        }
        if core(queue) ~= 'unified' then
          append(fields, 'spawned_from_jid', template)
        end
        if throttles then
          append(fields, 'throttles', throttles)
        end
        call('HMSET', RECORD .. id, unpack(fields))
        log_event(due, queue, id, 'put', {q = queue})
        into_work(due, queue, priority, id)
        due = due + interval
        call('ZADD', key, due, template)
        made = made + 1
      end
    end
  end
  return made
end

-- Looks after jobs whose lock has ended. A worker is warned first and may go on for the grace period; then the attempt is lost, and
-- the job is free for another worker, or has failed. `limit`: how many locks to look at, `most`: how many jobs to free, of those of
-- which `wanted(id)` says so. Returns the ids of the freed ones, and how many locks had ended.
local function lose_locks(now, queue, limit, most, wanted)
  local freed = {}
  if limit <= 0 then
    return freed, 0
  end
  local grace_period = setting('grace-period', 10)
  local ended = call('ZRANGEBYSCORE', locks_of(queue), '-inf', now, 'LIMIT', 0, limit)
  for _, id in ipairs(ended) do
    local worker, grace, remaining, throttles = fields_of(id, 'worker', 'grace', 'remaining', 'throttles')
    if worker == nil then
      call('ZREM', locks_of(queue), id) -- its record was deleted by somebody
    else
      worker = worker or ''
      if not grace then
        call('ZREM', jobs_of(worker), id)
        publish_if_tracked('stalled', id)
        log_event(now, queue, id, 'timed-out')
        call('HSET', RECORD .. id, 'grace', 1)
        publish_lost_lock(id, worker)
        call('ZADD', locks_of(queue), now + grace_period, id)
        add_to_counter(now, queue, 'retries', 1)
      end
      if grace or grace_period <= 0 then
        local is_last = (tonumber(remaining or nil) or 0) < 1
        if is_last or (#freed < most and wanted(id)) then
          call('ZREM', jobs_of(worker), id)
          call('HDEL', RECORD .. id, 'grace')
          local left = attempt('HINCRBY', RECORD .. id, 'remaining', -1)
          if not left or left < 0 then
            fail_exhausted(now, queue, id, throttles)
            publish('log', {
              jid = id, event = 'failed', worker = worker, group = 'failed-retries-' .. queue, message = exhausted_in(queue),
            })
            publish_if_tracked('failed', id)
          else
            append(freed, id)
          end
        end
      end
    end
  end
  return freed, #ended
end

-- Cancels a job that there is: nothing is left of it.
local function cancel(now, id)
  local names = {'state', 'queue', 'worker', 'failure', 'tags', 'throttles'}
  local state, queue, worker, failure, tags, throttles = fields_of(id, unpack(names))
  queue, worker = queue or '', worker or ''
  local message = {jid = id, event = 'canceled', worker = worker, queue = queue}
  publish('log', message)
  if worker ~= '' then
    call('ZREM', jobs_of(worker), id)
    publish('w:' .. worker, message)
  end
  out_of(queue, id, 'work', 'locks', 'scheduled', 'depends')
  if throttles then
    out_of(queue, id, 'throttled')
    release_throttles(now, id, throttles)
  end
  for _, other in ipairs(call('SMEMBERS', RECORD .. id .. '-dependencies')) do
    call('SREM', RECORD .. other .. '-dependents', id)
  end
  call('DEL', RECORD .. id .. '-dependencies')
  if state == 'failed' then
    local known = table_in(failure)
    local group, when = known.group, tonumber(known.when)
    if type(group) == 'string' then
      unlist_as_failed(group, id)
    end
    local count = when and call('HGET', counters(when, queue), 'failed')
    if count then
      call('HINCRBY', counters(when, queue), 'failed', -1)
    end
  end
  remove_tags(queue, id, tags)
  publish_if_tracked('canceled', id)
  call('DEL', RECORD .. id, RECORD .. id .. '-history')
end
