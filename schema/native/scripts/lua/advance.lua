-- Promotes due jobs and reclaims what lapsed consumers held, for nobody in particular.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   most jobs to promote
-- ARGV[3]   most jobs to reclaim
-- Result    {promoted, reclaimed, 1 if the TTLs of a temporary queue are not all renewed yet}; a number that reaches its limit means
--           that there may be more

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  sample(now)
  local promoted = promote(now, tonumber(ARGV[2]))
  local reclaimed = reclaim(now, tonumber(ARGV[3]))
  finish(now)
  return {promoted, reclaimed, queue.renewing and 1 or 0}
end)
