-- Extends a consumer's lease on all that it holds of a type. A job's ttl goes on: it limits the run.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]  type
-- ARGV[3]  consumer
-- ARGV[4]  lease, ms from now
-- Result   1; 0 if it has lapsed

return reply_of(function()
  local now = clock()
  first_write()
  return renew_lease(ARGV[2], ARGV[3], now + tonumber(ARGV[4])) and 1 or 0
end)
