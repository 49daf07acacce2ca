-- The delivery tags of what a consumer has: not of what it has lost.
--
-- KEYS, ARGV[1…6]   see _common.lua
-- ARGV[7]   queue
-- ARGV[8]   consumer
-- Result    delivery tags, the first taken first

local queue, consumer = ARGV[7], ARGV[8]

return reply_of(function()
  local tags, taken = owned_by(queue, consumer), {}
  for i = #tags, 1, -1 do
    append(taken, tags[i])
  end
  return taken
end)
