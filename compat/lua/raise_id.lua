-- Raises a counter of ids, so that the original software never gives out an id that a written job has. Safe to repeat; never lowers.
-- KEYS[1]  the counter
-- ARGV[1]  an id that was written
local given = tonumber(redis.call('GET', KEYS[1]) or 0) or 0
if given < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[1])
end
