-- Ends jobs that are done.
--
-- KEYS      see _common.lua
-- ARGV[1]   now
-- ARGV[2]   queue
-- ARGV[3]   consumer
-- ARGV[4…]  ids
-- Result    for each, 1, or 0 for one that was not the consumer's any more
--
-- kickq keeps no results.

local queue, consumer = ARGV[2], ARGV[3]

return reply_of(function()
  local now = clock()
  first_write()
  local ended = {}
  for i = 4, #ARGV do
    local id = ARGV[i]
    local job = held_job(queue, consumer, id)
    if job then
      local _, _, total = add_run(job, now, started_at(queue, id, now), 'success')
      finish(job, now, 'success', total)
      leave_run(queue, id, true)
    end
    append(ended, job and 1 or 0)
  end
  return ended
end)
