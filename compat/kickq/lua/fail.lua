-- Ends a run that has failed or has taken too long; the job's own options decide what comes then.
--
-- KEYS, and ARGV[1] to ARGV[3]: see _common.lua
-- ARGV[4]   queue
-- ARGV[5]   consumer
-- ARGV[6]   id
-- ARGV[7]   error, as JSON; '' for a run that has taken too long
-- ARGV[8]   '1' if no run may follow
-- ARGV[9]   when the next run is due, ms from now; '' as the job says
-- ARGV[10]   payload to replace the job's for that run, as JSON; '' leaves it
-- ARGV[11]   what Celery knows of the job, to replace the same; '' leaves it
-- Result    'scheduled' or 'failed', or 'lost': it was not the consumer's any more

local queue, consumer, id = ARGV[4], ARGV[5], ARGV[6]

return reply_of(function()
  local now = clock()
  first_write()
  local job = held_job(queue, consumer, id)
  if not job then
    return 'lost'
  end
  local run, problem = 'fail', ARGV[7]
  if problem == '' then
    run, problem = 'ghost', TIMED_OUT
  end
  if ARGV[10] ~= '' then
    set_member(job, 'data', ARGV[10])
  end
  if ARGV[11] ~= '' then
    call('HSET', JOB .. id, 'ferryman', ARGV[11])
  end
  local started = started_at(queue, id, now)
  local goes_on = fail_run(job, now, started, run, problem, ARGV[8] == '1', tonumber(ARGV[9]))
  leave_run(queue, id, not goes_on)
  return goes_on and 'scheduled' or 'failed'
end)
