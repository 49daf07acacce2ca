-- Takes a job from its worker at once. It waits in front of all others, called stalled; the attempt does not count.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]  id
-- Result   1; 0 if nobody runs it

local id = ARGV[3]

return reply_of(function()
  local now = seconds()
  first_write()
  local state, queue, worker, throttles = fields_of(id, 'state', 'queue', 'worker', 'throttles')
  if state ~= 'running' then
    return 0
  end
  log_event(now, queue, id, 'timed-out')
  call('ZADD', zset(queue, 'work'), '+inf', id)
  call('ZREM', locks_of(queue), id)
  if throttles then
    release_throttles(now, id, throttles)
  end
  call('HMSET', RECORD .. id, 'state', 'stalled', 'expires', 0)
  publish_lost_lock(id, worker)
  return 1
end)
