-- Puts the staged jobs of one queue into its list, in their order and to run before what stands there. Safe to repeat.
-- KEYS[1]  zset: job id by its place in the pop order
-- KEYS[2]  the list, popped from its tail
local SLICE = 1000

local ids = redis.call('ZREVRANGE', KEYS[1], 0, -1)
local staged = {}
for _, id in ipairs(ids) do
  staged[id] = true
end

local function push(those)
  for first = 1, #those, SLICE do
    redis.call('RPUSH', KEYS[2], unpack(those, first, math.min(first + SLICE - 1, #those)))
  end
end

-- What an earlier run left of the same jobs goes. In a first run the list is empty, and this costs nothing.
local rest, all = {}, redis.call('LRANGE', KEYS[2], 0, -1)
for _, id in ipairs(all) do
  if not staged[id] then
    rest[#rest + 1] = id
  end
end
if #rest < #all then
  redis.call('DEL', KEYS[2])
  push(rest)
end
push(ids)
redis.call('DEL', KEYS[1])
