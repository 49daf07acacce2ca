-- Shows the dead jobs that wait to be forwarded to the dead letter exchange, the oldest first. What has become due or has expired
-- meanwhile, in a queue that perhaps nobody consumes, is moved first.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   most jobs to show; fewer come, but one at least, if their messages are large
-- Result    {'missing'}: no such queue, or it has no dead letter exchange. Else {'letters', exchange, routing key or '', now, when to
--           poll again ms, 1 if the order is descending, and for each job {id, number, score, time of death ms, deliveries,
--           {field, value, …}}}; exchange and routing key as JSON texts

-- A queue is polled so often that what comes into it meanwhile is seen before its time is over, if that is not too often. USUAL
-- is for queues whose messages have times of their own at most.
local SHORTEST, USUAL, LONGEST = 1000, 10000, 30000

-- Gives up the jobs at the head of waiting whose time is over. Returns when that of the first of the others is.
local function expire(now)
  local expired, next_expiry = {}, math.huge
  while #expired < MAX_PER_CALL do -- none of them is freed: the queue has a dead letter exchange
    local head = call('ZRANGE', WAITING, #expired, #expired, 'WITHSCORES')
    next_expiry = head[1] and tonumber(attempt('HGET', JOB .. head[1], 'expires_at') or nil) or math.huge
    if next_expiry > now then
      break
    end
    account({head[1]}, -1)
    discard(now, head[1], head[2], 'expired', 'not delivered in its time')
    append(expired, head[1])
  end
  in_slices('ZREM', WAITING, expired)
  return next_expiry
end

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  sample(now)
  if not (queue.schema and queue.dead_letter_exchange) then
    return {'missing'}
  end
  promote(now, MAX_PER_CALL)
  local next_expiry = expire(now)
  finish(now)
  local patience = queue.ttl and math.min(math.max(queue.ttl / 2, SHORTEST), LONGEST) or USUAL
  local next_poll = math.floor(math.min(now + patience, next_expiry, lowest_score(SCHEDULED)))
  local routing_key = call('HGET', META, 'dead_letter_routing_key') or ''
  local order = queue.priority_order == 'descending' and 1 or 0
  local reply = {'letters', queue.dead_letter_exchange, routing_key, now, next_poll, order}
  local entries, bytes = call('ZRANGE', OUTBOX, 0, ARGV[2] - 1, 'WITHSCORES'), 0
  for i = 1, #entries, 2 do
    bytes = bytes + size_of(entries[i])
    if i > 1 and bytes > MAX_READ_BYTES then
      reply[5] = now
      break
    end
    append(reply, dead_letter_reply(entries[i], entries[i + 1], call('ZSCORE', DEAD, entries[i]) or '0'))
  end
  return reply
end)
