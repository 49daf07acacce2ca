-- Puts jobs that a consumer holds back to their old places, to be delivered again.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   consumer
-- ARGV[3…]  ids
-- Result    for each id 1, or 0 for one that this consumer does not hold (any more)

local consumer = ARGV[2]

return answer(function()
  local now = clock()
  open()
  drain()
  local verdicts, requeued = {}, 0
  for i = 3, #ARGV do
    local back = put_back(consumer, ARGV[i])
    append(verdicts, back and 1 or 0)
    requeued = requeued + (back and 1 or 0)
  end
  count('requeued', requeued)
  settle(now)
  return verdicts
end)
