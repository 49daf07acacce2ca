-- A consumer's heartbeat: renews its lease, and the locks of all that it holds of a queue.
--
-- KEYS[1]   root of the side keys
-- KEYS[2]   what bee's keys begin with
-- ARGV[1]   now
-- ARGV[2]   the consumer's hive
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
