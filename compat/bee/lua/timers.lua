-- bee's clockwork for all queues that have consumers of ours: jobs whose time has come or is over, locks of lost workers.
--
-- KEYS[1]   root of the side keys
-- KEYS[2]   what bee's keys begin with
-- ARGV[1]   now
-- ARGV[2]   hive
-- Result    1 if there is more to do at once, else 0

return reply_of(function()
  local now, more = clock(), 0
  first_write()
  local queues = served_queues()
  local limit = math.max(1, math.floor(MAX_PER_CALL / math.max(1, #queues)))
  for _, queue in ipairs(queues) do
    if run_timers(now, queue, limit) then
      more = 1
    end
    end_leases(now, queue, MAX_PER_CALL)
  end
  return more
end)
