-- Puts the staged jobs of one queue into its list, in their order and to run before what stands there. Safe to repeat, and to be
-- repeated while it replies 1: one call does a part of the work.
-- KEYS[1]  zset: job id by its place in the pop order
-- KEYS[2]  the list
-- KEYS[3]  the new list that takes its place in the last call: workers see what was staged when all of it is there
-- ARGV[1]  the end from which the list is popped, 'head' or 'tail'
-- Result   1 if there is more to do, 0 if not
local LIMIT = 1000

local staged, list, new = unpack(KEYS)
local pops_head = ARGV[1] == 'head'

local number, done = redis.call('ZCARD', staged), redis.call('LLEN', new)
if number == 0 then
  return 0
end
local moved = 0
if done < number then
  -- What runs first is pushed first to a list that is popped from its head, and last to one that is popped from its tail.
  local ids = redis.call(pops_head and 'ZRANGE' or 'ZREVRANGE', staged, done, done + LIMIT - 1)
  redis.call('RPUSH', new, unpack(ids))
  if done + #ids < number then
    return 1
  end
  moved = #ids
end

-- Behind them goes what stands in the list, but for what an earlier run has left of the same jobs.
local id = redis.call('LINDEX', list, pops_head and 0 or -1)
while id do
  if moved >= LIMIT then
    return 1
  end
  if not redis.call('ZSCORE', staged, id) then
    redis.call(pops_head and 'RPUSH' or 'LPUSH', new, id)
  end
  redis.call(pops_head and 'LPOP' or 'RPOP', list)
  moved = moved + 1
  id = redis.call('LINDEX', list, pops_head and 0 or -1)
end
redis.call('RENAME', new, list)
redis.call('UNLINK', staged)
return 0
