-- Ends jobs that are done.
--
-- KEYS, and ARGV[1] to ARGV[3]: see _common.lua
-- ARGV[4]   queue
-- ARGV[5]   consumer
-- ARGV[6…]  ids
-- Result    for each 'completed', or 'lost': it was not the consumer's any more
--
-- kickq keeps no results.

local queue, consumer = ARGV[4], ARGV[5]

return reply_of(function()
  local now = clock()
  first_write()
  local ended = {}
  for i = 6, #ARGV do
    local id = ARGV[i]
    local job = held_job(queue, consumer, id)
    if job then
      local _, _, total = add_run(job, now, started_at(queue, id, now), 'success')
      finish(job, now, 'success', total)
      leave_run(queue, id, true)
    end
    append(ended, job and 'completed' or 'lost')
  end
  return ended
end)
