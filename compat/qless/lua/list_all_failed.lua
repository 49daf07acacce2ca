-- Lists all jobs that have failed under one group, the newest failure at the head. Only where none is listed yet.
-- KEYS[1]  P:f:<group>
-- KEYS[2]  P:failures
-- KEYS[3]  sorted set: jid by the time of its failure
-- ARGV[1]  group
local SLICE = 1000

-- Of those that failed in the same second, the one with the larger id counts as the newer one.
local newest = redis.call('ZREVRANGE', KEYS[3], 0, SLICE - 1)
while #newest > 0 do
  redis.call('RPUSH', KEYS[1], unpack(newest))
  redis.call('ZREMRANGEBYRANK', KEYS[3], -#newest, -1)
  newest = redis.call('ZREVRANGE', KEYS[3], 0, SLICE - 1)
end
redis.call('SADD', KEYS[2], ARGV[1])
