-- Puts the staged jobs of one queue into its list, in their order and to run before what stands there. Safe to repeat.
-- KEYS[1]  zset: job id by its place in the pop order
-- KEYS[2]  the list, popped from its tail
local SLICE = 1000

-- What an earlier run left of the same jobs goes. In a first run the list is empty, and this costs nothing.
local rest, repeated = {}, false
for _, id in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  if redis.call('ZSCORE', KEYS[1], id) then
    repeated = true
  else
    rest[#rest + 1] = id
  end
end
if repeated then
  redis.call('DEL', KEYS[2])
  for first = 1, #rest, SLICE do
    redis.call('RPUSH', KEYS[2], unpack(rest, first, math.min(first + SLICE - 1, #rest)))
  end
end

local last = redis.call('ZREVRANGE', KEYS[1], 0, SLICE - 1)
while #last > 0 do
  redis.call('RPUSH', KEYS[2], unpack(last))
  redis.call('ZREMRANGEBYRANK', KEYS[1], -#last, -1)
  last = redis.call('ZREVRANGE', KEYS[1], 0, SLICE - 1)
end
