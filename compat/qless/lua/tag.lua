-- Tags a job, and counts the tag. Safe to repeat.
-- KEYS[1]  P:t:<tag>
-- KEYS[2]  P:tags
-- ARGV[1]  the time of tagging
-- ARGV[2]  jid
-- ARGV[3]  tag
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], redis.call('ZCARD', KEYS[1]), ARGV[3])
