-- Leases: what every script about them begins with, after _common.lua and _queue.lua.
--
-- A lease is the score of a consumer in `consumers`: the time in ms at which it ends. It covers all that the consumer holds in the
-- queue, its zset `held:<consumer>`, in which ids have the score that they had in waiting. take.lua begins a lease and renews it,
-- as poll.lua and renew.lua do; release.lua ends it; whoever takes or advances reclaims what lapsed consumers held.

-- Registers a consumer for its lease; one that holds nothing for two. Nobody waits for the end of such a one, so it need not
-- renew as often, and the others need not look as often whether it has lapsed (take.lua).
local function renew_lease(consumers, held, consumer, now, lease)
  local holds = call('EXISTS', held) == 1
  call('ZADD', consumers, now + (holds and lease or 2 * lease), consumer)
end

-- How many consumers have a lease.
local function count_consumers(now)
  return call('ZCOUNT', CONSUMERS, '(' .. now, '+inf')
end

-- Moves what a consumer holds back to waiting, where it was, at most `limit`. Returns the ids.
local function return_held(consumer, limit)
  local held = call('ZRANGE', HELD .. consumer, 0, limit - 1, 'WITHSCORES')
  local members, ids = {}, {}
  for i = 1, #held, 2 do
    append(members, held[i + 1], held[i])
    append(ids, held[i])
  end
  in_slices('ZADD', WAITING, members)
  account(ids, 1)
  renew_arrivals(ids)
  in_slices('ZREM', HELD .. consumer, ids)
  return ids
end

-- Moves one job that a consumer holds back to waiting, where it was. The consumer said so, hence a later ack must not cancel it
-- (ack.lua): the job keeps its name under another field. Returns whether it did hold it.
local function return_job(consumer, id)
  local score = call('ZSCORE', HELD .. consumer, id)
  if not score then
    return false
  end
  call('ZADD', WAITING, score, id)
  account({id}, 1)
  renew_arrivals({id})
  attempt('HSET', JOB .. id, 'last_consumer', consumer)
  attempt('HDEL', JOB .. id, 'consumer')
  call('ZREM', HELD .. consumer, id)
  return true
end

-- Moves back what consumers hold whose lease has ended, at most `limit` jobs, and unregisters those consumers. Returns how
-- many.
local function reclaim(now, limit)
  local moved = 0
  for _, consumer in ipairs(call('ZRANGEBYSCORE', CONSUMERS, '-inf', now, 'LIMIT', 0, limit)) do
    moved = moved + #return_held(consumer, limit - moved)
    if moved == limit then
      break
    end
    call('ZREM', CONSUMERS, consumer)
  end
  count('reclaimed', moved)
  return moved
end
