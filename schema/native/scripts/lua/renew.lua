-- Extends the lease of a consumer on everything it holds in this queue: one score.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   consumer
-- ARGV[3]   lease, ms from now
-- Result    1, or 0 for a consumer that is not registered: its lease has lapsed, and what it held is no longer its own; 2 if the
--           TTLs of a temporary queue are not all renewed yet

return answer(function()
  local now = clock()
  open()
  drain()
  if not call('ZSCORE', CONSUMERS, ARGV[2]) then
    return 0
  end
  register(now, ARGV[2], tonumber(ARGV[3]))
  settle(now)
  return queue.renewing and 2 or 1
end)
