-- Puts jobs that a consumer holds back, to be taken again; what their consumer has done counts for nothing.
--
-- KEYS      see _common.lua
-- ARGV[1]   now
-- ARGV[2]   queue
-- ARGV[3]   consumer
-- ARGV[4]   '1' if the consumer goes, when it holds nothing more
-- ARGV[5]   how many at most
-- ARGV[6…]  ids; none: all that it holds
-- Result    for each, 1, or 0 for one that was not the consumer's any more

local queue, consumer, limit = ARGV[2], ARGV[3], tonumber(ARGV[5])

return reply_of(function()
  first_write()
  local ids = {}
  for i = 6, #ARGV do
    append(ids, ARGV[i])
  end
  if #ids == 0 then
    ids = held_by(queue, consumer, limit)
  end
  local given, jobs = {}, {}
  for _, id in ipairs(ids) do
    local job = held_job(queue, consumer, id)
    append(given, job and 1 or 0)
    append(jobs, job)
  end
  give_back(queue, jobs)
  for _, job in ipairs(jobs) do
    leave_run(queue, job.id)
  end
  if ARGV[4] == '1' and #ids < limit then
    end_lease(queue, consumer)
  end
  return given
end)
