-- Deletes what waits in a queue or is scheduled, a chunk at a time. Held and dead jobs stay.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   most jobs to delete
-- Result    {deleted, 1 if there may be more}

local limit = tonumber(ARGV[2])

return answer(function()
  local now = clock()
  open()
  drain()
  local purged = clear(WAITING, limit)
  if purged < limit then
    purged = purged + clear(SCHEDULED, limit - purged)
  end
  count('purged', purged)
  settle(now)
  return {purged, purged == limit and 1 or 0}
end)
