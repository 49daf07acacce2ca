-- Puts jobs that a consumer holds back, to be taken again; what their consumer has done counts for nothing.
--
-- KEYS, and ARGV[1] to ARGV[3]: see _common.lua
-- ARGV[4]   queue
-- ARGV[5]   consumer
-- ARGV[6]   'requeue' or 'some': these ids; 'all' that it holds; 'leave': all, and the consumer goes; at most MAX_PER_CALL of all
-- ARGV[7…]  ids
-- Result    for each, 1, or 0 for one that was not the consumer's any more

local queue, consumer, which = ARGV[4], ARGV[5], ARGV[6]

return reply_of(function()
  first_write()
  local is_all = which == 'all' or which == 'leave'
  local ids = is_all and held_by(queue, consumer, MAX_PER_CALL) or args_from(7)
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
  if which == 'leave' and #ids < MAX_PER_CALL then
    end_lease(queue, consumer)
  end
  return given
end)
