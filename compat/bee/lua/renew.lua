-- A consumer's heartbeat: renews its lease, and the locks of all that it holds of a queue.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue
-- ARGV[4]   lease, ms from now
-- Result    1; 0 if the consumer is not known any more

return reply_of(function()
  local now, queue = clock(), ARGV[3]
  first_write()
  if not renew_lease(queue, HIVE, now + tonumber(ARGV[4])) then
    return 0
  end
  beat(now, queue)
  return 1
end)
