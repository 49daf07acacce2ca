-- Takes one job out of the indexes where it must not stand, in whatever form they name it. Safe to repeat.
-- KEYS[i]  zsets; the first ARGV[1] of them are those where the job belongs
-- ARGV[1]  how many
-- ARGV[2]  the member that means the job
-- ARGV[3]  the member that means it in the form of another version, and must go everywhere
for i = 1, #KEYS do
  redis.call('ZREM', KEYS[i], ARGV[3])
  if i > tonumber(ARGV[1]) then
    redis.call('ZREM', KEYS[i], ARGV[2])
  end
end
