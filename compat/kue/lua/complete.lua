-- Ends jobs that are done.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]  type
-- ARGV[3]  consumer
-- ARGV[4…] for each job its id, its result as JSON ('' for none), and '1' if kue would keep that
-- Result   for each 'completed', 'removed' if its removeOnComplete says so, or 'lost'

local queue, consumer = ARGV[2], ARGV[3]

local function complete(job, now, result, is_kept)
  local key = job_key(job.id)
  local duration = math.max(0, now - (tonumber(job.started_at) or now))
  call('HSET', key, 'duration', duration, 'progress', '100')
  if is_kept and era() >= V0_8 then
    call('HSET', key, 'result', result)
  end
  enter(job, 'complete', now)
  if era() >= V0_8 then
    count_attempt(job)
  end
  attempt('INCRBY', P .. 'stats:work-time', duration)
  publish(job.id, 'complete', ',' .. (result == '' and 'null' or result) .. ',null')
  if (job.removeOnComplete or '') ~= '' and era() >= V0_8 then
    delete(job)
    return 'removed'
  end
  return 'completed'
end

return reply_of(function()
  local now = clock()
  first_write()
  local outcomes = {}
  for i = 4, #ARGV, 3 do
    local job = held_job(queue, consumer, ARGV[i], now)
    if job then
      append(outcomes, complete(job, now, ARGV[i + 1], ARGV[i + 2] == '1'))
      let_go(queue, job.id, true)
    else
      append(outcomes, 'lost')
    end
  end
  return outcomes
end)
