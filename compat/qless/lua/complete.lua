-- Ends jobs that are done, or sends them to their next queue.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue
-- ARGV[4]   worker
-- ARGV[5]   next queue, '' none
-- ARGV[6]   delay there, seconds
-- ARGV[7]   ids of jobs to wait for there, JSON, '' none
-- ARGV[8…]  pairs of id and data, JSON, '' that which it has
-- Result    for each id its new state, '' if the worker did not run it in this queue any more

local queue, worker, next_queue, delay, depends = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), table_in(ARGV[7])

-- Most complete jobs that one call removes, because they are too many or too old.
local MOST_EXPIRED = 1000

local function forget(ids)
  for _, id in ipairs(ids) do
    local tags = attempt('HGET', RECORD .. id, 'tags')
    remove_tags(queue, id, tags)
    call('DEL', RECORD .. id, RECORD .. id .. '-history')
    call('ZREM', QL .. 'completed', id)
  end
end

local function expire_complete(now)
  local key = QL .. 'completed'
  forget(call('ZRANGEBYSCORE', key, '-inf', now - setting('jobs-history', 604800), 'LIMIT', 0, MOST_EXPIRED))
  local too_many = call('ZCARD', key) - setting('jobs-history-count', 50000)
  if too_many > 0 then
    forget(call('ZRANGE', key, 0, math.min(too_many, MOST_EXPIRED) - 1))
  end
end

-- Those that wait for this job wait for one less.
local function release_dependents(now, id)
  local key = RECORD .. id .. '-dependents'
  for _, other in ipairs(call('SMEMBERS', key)) do
    call('SREM', RECORD .. other .. '-dependencies', id)
    if call('SCARD', RECORD .. other .. '-dependencies') == 0 then
      stop_waiting(now, other, core(queue) ~= 'unified')
    end
  end
  call('DEL', key)
end

-- Into the next queue. Whatever its delay, a job that waits for nobody is called waiting there.
local function advance(now, id, priority, retries)
  publish('log', {jid = id, event = 'advanced', queue = queue, to = next_queue})
  log_event(now, queue, id, 'put', {q = next_queue})
  register_queue(now, next_queue)
  call('HMSET', RECORD .. id, 'state', 'waiting', 'worker', '', 'failure', '{}', 'queue', next_queue, 'expires', 0, 'remaining', retries)
  if delay > 0 and #depends == 0 then
    call('ZADD', zset(next_queue, 'scheduled'), now + delay, id)
    return 'scheduled'
  end
  local open = open_ones(depends)
  wait_for(id, open)
  if #open > 0 then
    call('ZADD', zset(next_queue, 'depends'), now, id)
    call('HSET', RECORD .. id, 'state', 'depends')
    if delay > 0 and core(queue) ~= 'unified' then
      call('HSET', RECORD .. id, 'scheduled', now + delay)
    end
    return 'depends'
  end
  into_work(now, next_queue, priority, id)
  return 'waiting'
end

local function finish(now, id, retries)
  publish('log', {jid = id, event = 'completed', queue = queue})
  call('HMSET', RECORD .. id, 'state', 'complete', 'worker', '', 'failure', '{}', 'queue', '', 'expires', 0, 'remaining', retries)
  call('ZADD', QL .. 'completed', now, id)
  release_dependents(now, id)
  return 'complete'
end

local function complete(now, id, data)
  local held = held_by_worker(queue, worker, id, 'priority', 'retries', 'time', 'throttles')
  if not held then
    return ''
  end
  local priority, retries, time, throttles = unpack(held)
  log_event(now, queue, id, 'done')
  if data ~= '' then
    call('HSET', RECORD .. id, 'data', core(queue) == 'unified' and cjson.encode(cjson.decode(data)) or data)
  end
  publish_if_tracked('completed', id) -- before what ql:log says of it, as qless does
  local state
  measure('run', now, queue, now - (tonumber(time or nil) or now))
  call('HSET', RECORD .. id, 'time', string.format('%.20f', now))
  out_of(queue, id, 'work', 'locks', 'scheduled')
  if next_queue ~= '' then
    state = advance(now, id, priority, retries)
  else
    state = finish(now, id, retries)
  end
  call('ZREM', jobs_of(worker), id)
  if throttles then
    release_throttles(now, id, throttles)
  end
  return state
end

return reply_of(function()
  local now = seconds()
  first_write()
  local states = {}
  for i = 8, #ARGV, 2 do
    append(states, complete(now, ARGV[i], ARGV[i + 1]))
  end
  if next_queue == '' then
    expire_complete(now)
  end
  return states
end)
