-- Puts jobs that a consumer holds back where they waited, to be delivered again.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   consumer
-- ARGV[3…]  ids
-- Result    for each id 1, or 0 for one that this consumer does not hold (any more)

local consumer = ARGV[2]

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  sample(now)
  local verdicts, requeued = {}, 0
  for i = 3, #ARGV do
    local back = return_job(consumer, ARGV[i])
    append(verdicts, back and 1 or 0)
    requeued = requeued + (back and 1 or 0)
  end
  count('requeued', requeued)
  finish(now)
  return verdicts
end)
