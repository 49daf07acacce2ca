-- Ends a run that has failed or has taken too long; the job's own options decide what comes then.
--
-- KEYS      see _common.lua
-- ARGV[1]   now
-- ARGV[2]   queue
-- ARGV[3]   consumer
-- ARGV[4]   id
-- ARGV[5]   error, as JSON; '' for a run that has taken too long
-- ARGV[6]   '1' if no run may follow
-- ARGV[7]   when the next run is due, ms from now; '' as the job says
-- ARGV[8]   payload to replace the job's for that run, as JSON; '' leaves it
-- ARGV[9]   what Celery knows of the job, to replace the same; '' leaves it
-- Result    'scheduled' or 'failed', or 'lost': it was not the consumer's any more

local queue, consumer, id = ARGV[2], ARGV[3], ARGV[4]

return reply_of(function()
  local now = clock()
  first_write()
  local job = held_job(queue, consumer, id)
  if not job then
    return 'lost'
  end
  local run, problem = 'fail', ARGV[5]
  if problem == '' then
    run, problem = 'ghost', TIMED_OUT
  end
  if ARGV[8] ~= '' then
    set_member(job, 'data', ARGV[8])
  end
  if ARGV[9] ~= '' then
    call('HSET', JOB .. id, 'ferryman', ARGV[9])
  end
  local started = started_at(queue, id, now)
  local goes_on = fail_run(job, now, started, run, problem, ARGV[6] == '1', tonumber(ARGV[7]))
  leave_run(queue, id, not goes_on)
  return goes_on and 'scheduled' or 'failed'
end)
