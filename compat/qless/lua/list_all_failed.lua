-- Lists all jobs that have failed under one group, the newest failure at the head. Only where none is listed yet. To be repeated
-- while it replies 1: one call does a part of the work.
-- KEYS[1]  P:f:<group>
-- KEYS[2]  P:failures
-- KEYS[3]  sorted set: jid by the time of its failure
-- ARGV[1]  group
-- Result   1 if there is more to do, 0 if not
local SLICE = 1000

-- Of those that failed in the same second, the one with the larger id counts as the newer one.
local newest = redis.call('ZREVRANGE', KEYS[3], 0, SLICE - 1)
if #newest > 0 then
  redis.call('RPUSH', KEYS[1], unpack(newest))
  redis.call('ZREMRANGEBYRANK', KEYS[3], -#newest, -1)
end
redis.call('SADD', KEYS[2], ARGV[1])
return redis.call('EXISTS', KEYS[3])
