-- What kickq's schedulers do every second, and what nobody does there: gives back what lapsed consumers of ours held, of all queues.
--
-- KEYS      see _common.lua
-- ARGV[1]   now
-- ARGV[2]   how often a job is given back of which the consumer has lapsed, '' without limit
-- Result    1 if there is more to do at once

return reply_of(function()
  local now = clock()
  first_write()
  local more = promote(now, MAX_PER_CALL) == MAX_PER_CALL
  more = purge_finished(now, MAX_PER_CALL) == MAX_PER_CALL or more
  local room = MAX_PER_CALL
  for _, queue in ipairs(served_queues()) do
    if room > 0 then
      room = room - reclaim_lapsed(queue, now, room, tonumber(ARGV[2]) or math.huge)
      forget_lapses(queue)
    end
  end
  return (more or room <= 0) and 1 or 0
end)
