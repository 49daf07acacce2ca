-- Extends the lease of a consumer on everything it holds in this queue: one score.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   consumer
-- ARGV[3]   lease, ms from now
-- Result    1, or 0 for a consumer that is not registered: its lease has lapsed, and what it held is no longer its own; 2 if the
--           TTLs of a temporary queue are not all renewed yet

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  if not call('ZSCORE', CONSUMERS, ARGV[2]) then
    return 0
  end
  renew_lease(CONSUMERS, HELD .. ARGV[2], ARGV[2], now, tonumber(ARGV[3]))
  finish(now)
  return queue.renewing and 2 or 1
end)
