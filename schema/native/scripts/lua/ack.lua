-- Ends jobs that a consumer has finished, and lets jobs go on that have waited for them. take.lua does so too.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   consumer
-- ARGV[3…]  ids
-- Result    for each id 'acked', 'cancelled' or 'lost', see _acks.lua

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  sample(now)
  local verdicts, unblocked = ack(now, ARGV[2], 3)
  if unblocked or queue.expires then
    finish(now) -- else nothing has come to wait
  end
  return verdicts
end)
