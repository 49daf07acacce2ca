-- bee's clockwork for all queues that have consumers of ours: jobs whose time has come or is over, locks of lost workers.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
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
