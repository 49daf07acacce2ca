-- Takes one job out of the places where it must not stand. Safe to repeat.
-- KEYS[i]  sets, then sorted sets, then lists
-- ARGV[1]  the job's id
-- ARGV[2]  how many sets
-- ARGV[3]  how many sorted sets
local sets, zsets = tonumber(ARGV[2]), tonumber(ARGV[3])
for i = 1, #KEYS do
  if i <= sets then
    redis.call('SREM', KEYS[i], ARGV[1])
  elseif i <= sets + zsets then
    redis.call('ZREM', KEYS[i], ARGV[1])
  else
    redis.call('LREM', KEYS[i], 0, ARGV[1])
  end
end
