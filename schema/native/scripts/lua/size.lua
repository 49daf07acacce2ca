-- Counts a queue's jobs. Changes nothing.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   '1' to count the waiting jobs of each priority as well
-- Result    {1 if the queue exists, in waiting, due, scheduled for later, held, dead, done, consumers with a lease, routes, next
--           due ms or -1, blocked, dead letters in the outbox, 1 if the order is descending, now, 1 if it is paused, and for each priority in waiting
--           {score of its first job, how many, ms for which that has waited or -1}}
--
-- Due jobs are no part of the priorities: only their hashes tell, and there may be a million of them.

-- For how long a job has been ready to be taken, ms; -1 where its hash does not tell.
local function age(now, id)
  local times = attempt('HMGET', JOB .. id, 'published_at', 'due_at') or {}
  local published, due = tonumber(times[1] or nil), tonumber(times[2] or nil)
  return published and math.max(0, now - math.max(published, due or 0)) or -1
end

-- From the first job of one priority straight to that of the next, so that it takes as long for a million jobs as for ten.
local function priorities(now)
  local found, from = {}, '-inf'
  while true do
    local head = call('ZRANGEBYSCORE', WAITING, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not head[1] then
      return found
    end
    local floor = math.floor(tonumber(head[2]) / RANK_STEP) * RANK_STEP
    from = string.format('%.0f', floor + RANK_STEP)
    append(found, {head[2], call('ZCOUNT', WAITING, string.format('%.0f', floor), '(' .. from), age(now, head[1])})
  end
end

return reply_of(function()
  local now = clock()
  open_queue()
  local held = 0
  for _, consumer in ipairs(call('ZRANGE', CONSUMERS, 0, -1)) do
    held = held + call('ZCARD', HELD .. consumer)
  end
  local due = count_due(now)
  local counts = {
    queue.schema and 1 or 0,
    call('ZCARD', WAITING),
    due,
    call('ZCARD', SCHEDULED) - due,
    held,
    call('ZCARD', DEAD),
    call('ZCARD', DONE),
    count_consumers(now),
    queue.routes or '0',
    tonumber(call('ZRANGE', SCHEDULED, 0, 0, 'WITHSCORES')[2]) or -1,
    call('SCARD', BLOCKED),
    call('ZCARD', OUTBOX),
    queue.priority_order == 'descending' and 1 or 0,
    now,
    queue.paused and 1 or 0,
  }
  for _, priority in ipairs(ARGV[2] == '1' and priorities(now) or {}) do
    append(counts, priority)
  end
  return counts
end)
