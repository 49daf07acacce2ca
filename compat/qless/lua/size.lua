-- How many jobs of a queue are where. Changes nothing.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]  queue
-- Result   {1 if the queue is known, waiting, of these due, scheduled, held, blocked, dead, done, consumers, next due ms or -1, now}

local queue = ARGV[3]

return reply_of(function()
  local now = seconds()
  local due = call('ZCOUNT', zset(queue, 'scheduled'), '-inf', now)
  local first = call('ZRANGE', zset(queue, 'scheduled'), 0, 0, 'WITHSCORES')[2]
  return {
    call('ZSCORE', QL .. 'queues', queue) and 1 or 0,
    call('ZCARD', zset(queue, 'work')) + due,
    due,
    call('ZCARD', zset(queue, 'scheduled')) - due,
    call('ZCARD', zset(queue, 'locks')),
    call('ZCARD', zset(queue, 'depends')) + call('ZCARD', zset(queue, 'throttled')),
    0,
    0,
    call('ZCOUNT', SIDE .. 'consumers:' .. queue, in_ms(now), '+inf'),
    first and due_ms(tonumber(first)) or -1,
    in_ms(now),
  }
end)
