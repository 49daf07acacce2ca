-- Puts the staged jobs of one queue into its list, in their order and to run before what stands there. Safe to repeat.
-- KEYS[1]  sorted set: id by its place in the pop order
-- KEYS[2]  the queue's list
local SLICE = 1000

local ids = redis.call('ZRANGE', KEYS[1], 0, -1)
if #ids == 0 then
  return
end
-- What an earlier run left of the same jobs goes. In a first run the list is empty, and this costs nothing.
local staged = {}
for _, id in ipairs(ids) do
  staged[id] = true
end
local rest, all = {}, redis.call('LRANGE', KEYS[2], 0, -1)
for _, id in ipairs(all) do
  if not staged[id] then
    rest[#rest + 1] = id
  end
end
if #rest < #all then
  redis.call('DEL', KEYS[2])
  for first = 1, #rest, SLICE do
    redis.call('RPUSH', KEYS[2], unpack(rest, first, math.min(first + SLICE - 1, #rest)))
  end
end
-- Lists are popped from their head, so what runs last is pushed first.
local slice = {}
for place = #ids, 1, -1 do
  slice[#slice + 1] = ids[place]
  if #slice == SLICE or place == 1 then
    redis.call('LPUSH', KEYS[2], unpack(slice))
    slice = {}
  end
end
redis.call('DEL', KEYS[1])
