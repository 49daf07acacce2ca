-- Polls several quiet queues in one call, and renews the lease of a consumer of theirs. Not for a cluster: each is in a slot of
-- its own.
--
-- KEYS      for each queue: meta, waiting, scheduled, consumers, held:<consumer>
-- ARGV[1]   now
-- ARGV[2]   consumer
-- ARGV[3]   lease, ms from now
-- Result    for each queue: in how many ms to poll it again, or 0 where something is to be done that only take does

local EACH = 5
local consumer, lease = ARGV[2], tonumber(ARGV[3])

-- The lowest score of those that stand in a zset beside this consumer; infinite for none.
local function lowest_score(key)
  local first = call('ZRANGE', key, 0, 1, 'WITHSCORES')
  return tonumber(first[first[1] == consumer and 4 or 2]) or math.huge
end

local function poll(now, meta, waiting, scheduled, consumers, held)
  local schema, expires, exchange, paused, unreported =
    unpack(call('HMGET', meta, 'schema', 'expires', 'dead_letter_exchange', 'paused', 'unreported'))
  if schema ~= '1' or expires or exchange or unreported or not call('ZSCORE', consumers, consumer) then
    return 0
  end
  if not paused and call('EXISTS', waiting) == 1 then
    return 0
  end
  local event = math.min(now + lease, lowest_score(scheduled), lowest_score(consumers))
  if event > now then
    renew_lease(consumers, held, consumer, now, lease)
  end
  return math.max(0, event - now)
end

return reply_of(function()
  local now = clock()
  local waits = {}
  attempt('ZREMRANGEBYRANK', KEYS[2], 1, 0) -- rule 2
  for first = 1, #KEYS, EACH do
    -- A damaged queue must not keep the others from being polled; take says what is wrong with it.
    local fine, ms = pcall(poll, now, unpack(KEYS, first, first + EACH - 1))
    append(waits, fine and ms or 0)
  end
  return waits
end)
