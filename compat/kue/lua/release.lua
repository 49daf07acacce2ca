-- Puts jobs back to wait that a consumer holds, their attempts as before.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]  type
-- ARGV[3]  consumer
-- ARGV[4]  'requeue' or 'some': these ids; 'all' that it holds; 'leave': all, and the consumer goes; at most MAX_PER_CALL of all
-- ARGV[5…] ids
-- Result   for each of these ids 1, or 0 if it was not this consumer's any more; of all, 1 for each that was looked at

local queue, consumer, which = ARGV[2], ARGV[3], ARGV[4]
local is_all = which == 'all' or which == 'leave'

return reply_of(function()
  local now = clock()
  first_write()
  local ids, flags = is_all and held_by(queue, consumer, MAX_PER_CALL) or args_from(5), {}
  for _, id in ipairs(ids) do
    local job = held_job(queue, consumer, id, now)
    if job then
      give_back(job, now)
      let_go(queue, id)
    end
    append(flags, (job or is_all) and 1 or 0)
  end
  if which == 'leave' and #ids < MAX_PER_CALL then
    end_lease(queue, consumer)
    forget_lapses(queue)
    if #served_queues() == 0 then
      call('DEL', SIDE .. 'unlisted') -- timers.lua has begun it; nobody goes on with it
    end
  end
  return flags
end)
