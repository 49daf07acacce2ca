-- Deletes what waits in a queue or is scheduled, a chunk at a time. Held and dead jobs stay.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   most jobs to delete; fewer go if their messages are large
-- Result    {deleted, 1 if there may be more}

local limit = tonumber(ARGV[2])

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  sample(now)
  local purged, more = clear(WAITING, limit)
  if not more then
    local scheduled
    scheduled, more = clear(SCHEDULED, limit - purged)
    purged = purged + scheduled
  end
  count('purged', purged)
  finish(now)
  return {purged, more and 1 or 0}
end)
