-- Jobs as bee gives them to its clients, with their place in their queue.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue: the jobs that stand first in it; '' for the ids that follow
-- ARGV[4]   how many of the queue
-- ARGV[5…]  ids
-- Result    for each job {JSON, due time or ''}; of an id without a job ''

return reply_of(function()
  local ids, jobs = {unpack(ARGV, 5)}, {}
  if #ids == 0 then
    ids = call('ZRANGE', set_of('queue', ARGV[3]), 0, math.min(tonumber(ARGV[4]), MAX_PER_CALL) - 1)
  end
  for _, id in ipairs(ids) do
    local job = job_of(id)
    append(jobs, job and {cjson.encode(job), call('ZSCORE', set_of('delayed', job.queue), id) or ''} or '')
  end
  return jobs
end)
