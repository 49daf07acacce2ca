-- Puts jobs that a consumer holds back, to be taken again; what their consumer has done counts for nothing.
--
-- KEYS, and ARGV[1] to ARGV[3]: see _common.lua
-- ARGV[4]   queue
-- ARGV[5]   consumer
-- ARGV[6]   '1' if the consumer goes, when it holds nothing more
-- ARGV[7]   how many at most
-- ARGV[8…]  ids; none: all that it holds
-- Result    for each, 1, or 0 for one that was not the consumer's any more

local queue, consumer, limit = ARGV[4], ARGV[5], tonumber(ARGV[7])

return reply_of(function()
  first_write()
  local ids = {}
  for i = 8, #ARGV do
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
  if ARGV[6] == '1' and #ids < limit then
    end_lease(queue, consumer)
  end
  return given
end)
