-- What kickq's schedulers do every second, and what nobody does there: gives back what lapsed consumers of ours held, of all queues.
--
-- KEYS, and ARGV[1] to ARGV[3]: see _common.lua
-- ARGV[4]   how often a job is given back of which the consumer has lapsed, '' without limit
-- ARGV[5]   '1' if finished jobs are deleted when their time has come
-- Result    1 if there is more to do at once

return reply_of(function()
  local now = clock()
  first_write()
  local more = promote(now)
  more = purge_finished(now, ARGV[5] == '1') or more
  local room = MAX_PER_CALL
  for _, queue in ipairs(served_queues()) do
    if room > 0 then
      room = room - reclaim_lapsed(queue, now, room, tonumber(ARGV[4]) or math.huge)
      forget_lapses(queue)
    end
  end
  return (more or room <= 0) and 1 or 0
end)
