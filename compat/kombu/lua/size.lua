-- How many messages of a queue are where.
--
-- KEYS, ARGV[1…6]   see _common.lua
-- ARGV[7]   queue
-- Result    {1, waiting, of these due, scheduled, held, blocked, dead, done, consumers, next due ms or -1, now}

local queue = ARGV[7]

return reply_of(function()
  local waiting = 0
  for _, step in ipairs(steps_of()) do
    waiting = waiting + call('LLEN', bucket(queue, step))
  end
  local held, consumers = call('HLEN', SIDE .. 'held:' .. queue), call('ZCARD', SIDE .. 'consumers:' .. queue)
  return {1, waiting, 0, 0, held, 0, 0, 0, consumers, -1, clock()}
end)
