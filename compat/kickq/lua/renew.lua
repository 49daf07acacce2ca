-- Extends the lease on all that a consumer holds of a queue, and ends those of its runs that have taken too long, as the timers in
-- kickq's workers do: who renews is alive, and what it says of such a job later comes too late.
--
-- KEYS, and ARGV[1] to ARGV[3]: see _common.lua
-- ARGV[4]   queue
-- ARGV[5]   consumer
-- ARGV[6]   lease, ms from now
-- Result    1, or 0 if the lease has lapsed

local queue, consumer = ARGV[4], ARGV[5]

return reply_of(function()
  local now = clock()
  first_write()
  if not renew_lease(queue, consumer, now + tonumber(ARGV[6])) then
    return 0
  end
  for _, id in ipairs(held_by(queue, consumer, MAX_PER_CALL)) do
    local started, limit = started_at(queue, id, now)
    local job = now - started >= limit and held_job(queue, consumer, id)
    if job then
      leave_run(queue, id, not fail_run(job, now, started, 'ghost', TIMED_OUT))
    end
  end
  return 1
end)
