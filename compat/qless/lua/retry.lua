-- The same job again, after a while; failed if that was its last attempt.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue
-- ARGV[4]   worker
-- ARGV[5]   id
-- ARGV[6]   delay, seconds
-- ARGV[7]   group of the failure, '' none
-- ARGV[8]   message of the failure
-- ARGV[9]   data, JSON, '' that which it has
-- ARGV[10]  what Celery knows of it, JSON, '' that which it has
-- ARGV[11]  '1' if a job without an attempt left fails in that group; else as in qless without one, failed-retries-<queue>
-- Result    {'waiting'|'scheduled'|'failed', attempts left}; {''} if the worker did not run it in this queue any more

local queue, worker, id, delay, group = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), ARGV[7]

return reply_of(function()
  local now = seconds()
  first_write()
  local held = held_by_worker(queue, worker, id, 'priority', 'throttles')
  if not held then
    return {''}
  end
  local failure = group ~= '' and {group = group, message = ARGV[8], when = math.floor(now), worker = worker} or nil
  local left = attempt('HINCRBY', RECORD .. id, 'remaining', -1) or -1
  call('HDEL', RECORD .. id, 'grace')
  if ARGV[9] ~= '' then
    call('HSET', RECORD .. id, 'data', ARGV[9])
  end
  if ARGV[10] ~= '' then
    call('HSET', RECORD .. id, 'ferryman', ARGV[10])
  end
  local state
  if left < 0 then
    fail_exhausted(now, queue, id, nil, ARGV[11] == '1' and failure or nil)
    state = 'failed'
  elseif delay > 0 then
    call('ZADD', zset(queue, 'scheduled'), now + delay, id)
    state = 'scheduled'
  else
    into_work(now, queue, held[1], id)
    state = 'waiting'
  end
  if left >= 0 then
    call('HSET', RECORD .. id, 'state', state)
    if failure then
      call('HSET', RECORD .. id, 'failure', cjson.encode(failure))
    end
  end
  call('ZREM', locks_of(queue), id)
  call('ZREM', jobs_of(worker), id)
  if held[2] then
    release_throttles(now, id, held[2])
  end
  return {state, left}
end)
