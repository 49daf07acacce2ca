-- Puts a job into the list of those with the same hash, unless it is there. Safe to repeat.
-- KEYS[1]  P:l:hashes:<queue>:<hash>
-- ARGV[1]  the job
-- ARGV[2]  'head' for an original, 'tail' for a duplicate
if not redis.call('LPOS', KEYS[1], ARGV[1]) then
  redis.call(ARGV[2] == 'head' and 'LPUSH' or 'RPUSH', KEYS[1], ARGV[1])
end
