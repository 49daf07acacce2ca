-- Looks at several quiet queues in one call, and keeps a consumer registered with them. Not for a cluster: each is in a slot of
-- its own.
--
-- KEYS      for each queue: meta, waiting, scheduled, consumers, held:<consumer>
-- ARGV[1]   now
-- ARGV[2]   consumer
-- ARGV[3]   lease, ms from now
-- Result    for each queue: in how many ms to look at it again, or 0 where something is to be done that only take does

local EACH = 5
local consumer, lease = ARGV[2], tonumber(ARGV[3])

-- The lowest score of those that stand in a zset beside this consumer; infinite for none.
local function lowest(key)
  local first = call('ZRANGE', key, 0, 1, 'WITHSCORES')
  return tonumber(first[first[1] == consumer and 4 or 2]) or math.huge
end

local function look(now, meta, waiting, scheduled, consumers, held)
  local schema, expires, letters = unpack(call('HMGET', meta, 'schema', 'expires', 'dead_letter_exchange'))
  if schema ~= '1' or expires or letters or call('EXISTS', waiting) == 1 or not call('ZSCORE', consumers, consumer) then
    return 0
  end
  local event = math.min(now + lease, lowest(scheduled), lowest(consumers))
  if event > now then
    -- As register() in _queue.lua: what holds nothing has two leases.
    call('ZADD', consumers, now + (call('EXISTS', held) == 1 and lease or 2 * lease), consumer)
  end
  return math.max(0, event - now)
end

return answer(function()
  local now = clock()
  local waits = {}
  attempt('ZREMRANGEBYRANK', KEYS[2], 1, 0) -- rule 2
  for first = 1, #KEYS, EACH do
    -- A damaged queue must not keep the others from being looked at; take says what is wrong with it.
    local fine, ms = pcall(look, now, unpack(KEYS, first, first + EACH - 1))
    append(waits, fine and ms or 0)
  end
  return waits
end)
