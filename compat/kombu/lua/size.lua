-- How many messages of a queue are where.
--
-- KEYS, ARGV[1…6]   see _common.lua
-- ARGV[7]   queue
-- Result    {now, waiting, had by consumers of ours, how many of those there are}

local queue = ARGV[7]

return reply_of(function()
  local waiting = 0
  for _, step in ipairs(steps_of()) do
    waiting = waiting + call('LLEN', bucket(queue, step))
  end
  return {clock(), waiting, call('HLEN', SIDE .. 'held:' .. queue), call('ZCARD', SIDE .. 'consumers:' .. queue)}
end)
