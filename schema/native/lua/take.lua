-- Gives a consumer up to n jobs, in order; first promotes what is due and reclaims what lapsed consumers held.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   consumer
-- ARGV[3]   n; 0 only looks
-- ARGV[4]   lease, ms from now
-- ARGV[5]   '1' if the jobs are acked by being taken
-- ARGV[6]   how often a job may be delivered where the queue does not say, '' without limit
-- Result    {'missing'}, or {'taken', now, next event ms, 1 if the order is descending, 1 if the queue has a dead letter exchange
--           or 2 if dead jobs wait to be carried there, and for each job {id, place, deliveries, {field, value, …}}}
--
-- Beside jobs, what stands first in waiting may be expired, delivered too often, or damaged (no hash, or no message in it). Such
-- go to dead with the reason, at most LIMIT of them in one call.

local consumer, room, lease = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local no_ack = ARGV[5] == '1'

-- A job's fields as pairs for the reply and as a map; nil for damage.
local function load(id)
  local fields = attempt('HGETALL', JOB .. id)
  if not fields then
    return nil
  end
  local map = {}
  for i = 1, #fields, 2 do
    map[fields[i]] = fields[i + 1]
  end
  if not (map.message or map.payload) then
    return nil
  end
  return fields, map
end

-- Looks at the first jobs of waiting until `room` of them can be delivered. Returns those, and the ids of the others.
local function choose(now)
  local limit = tonumber(queue.delivery_limit) or tonumber(ARGV[6]) or math.huge
  local chosen, refused = {}, {}
  local from = 0
  while #chosen < room and #refused < LIMIT do
    local heads = call('ZRANGE', WAITING, from, from + room - #chosen - 1, 'WITHSCORES')
    if #heads == 0 then
      break
    end
    from = from + #heads / 2
    for i = 1, #heads, 2 do
      local id, place = heads[i], heads[i + 1]
      local fields, map = load(id)
      if not fields then
        bury(now, id, place, 'broken', 'the job has no message')
        count('broken', 1)
        append(refused, id)
      elseif (tonumber(map.expires_at) or math.huge) <= now then
        weigh({id}, -1)
        discard(now, id, place, 'expired', 'not delivered in its time')
        append(refused, id)
      elseif (tonumber(map.deliveries) or 0) >= limit then
        weigh({id}, -1)
        bury(now, id, place, 'delivery_limit', 'delivered ' .. map.deliveries .. ' times, last to ' .. (map.consumer or 'nobody'))
        append(refused, id)
      else
        append(chosen, {id, place, (tonumber(map.deliveries) or 0) + 1, fields})
      end
    end
  end
  return chosen, refused
end

local function deliver(now, chosen)
  local places, ids = {}, {}
  for _, job in ipairs(chosen) do
    append(places, job[2], job[1])
    append(ids, job[1])
  end
  weigh(ids, -1)
  if no_ack then
    in_slices('ZREM', WAITING, ids)
    erase(ids)
    count('acked', #ids)
  else
    in_slices('ZADD', HELD .. consumer, places)
    for _, job in ipairs(chosen) do
      call('HSET', JOB .. job[1], 'deliveries', job[3], 'delivered_at', now, 'consumer', consumer)
    end
    in_slices('ZREM', WAITING, ids)
  end
  count('delivered', #ids)
  local again = 0
  for _, job in ipairs(chosen) do
    again = again + (job[3] > 1 and 1 or 0)
  end
  count('redelivered', again)
end

-- When this consumer should look again, if nothing wakes it: never later than its lease, because another consumer that begins
-- meanwhile can lapse only after that.
local function next_event(now, next_due)
  local event = math.min(now + lease, next_due)
  local leases = call('ZRANGE', CONSUMERS, 0, 1, 'WITHSCORES')
  for i = 1, #leases, 2 do
    if leases[i] ~= consumer then
      event = math.min(event, tonumber(leases[i + 1]))
    end
  end
  return event
end

return answer(function()
  local now = clock()
  open()
  if not queue.schema then
    return {'missing'}
  end
  drain()
  call('ZADD', CONSUMERS, now + lease, consumer) -- first of all: it must not lapse itself in this call
  local next_due = lowest(SCHEDULED)
  if next_due <= now then
    promote(now, LIMIT)
    next_due = lowest(SCHEDULED)
  end
  reclaim(now, LIMIT)
  local chosen, refused = choose(now)
  deliver(now, chosen)
  if #chosen == 0 or no_ack then
    register(now, consumer, lease)
  end
  in_slices('ZREM', WAITING, refused)
  if not settle(now) and room > 0 then
    if #chosen == room and next_due < math.huge then
      wake() -- this consumer is full and may stop looking: another one must know when the next job is due
    else
      call('DEL', WAKE)
    end
  end
  local forwards = has_letters() and 2 or queue.dead_letter_exchange and 1 or 0
  local taken = {'taken', now, next_event(now, next_due), queue.priority_order == 'descending' and 1 or 0, forwards}
  for _, job in ipairs(chosen) do
    append(taken, job)
  end
  return taken
end)
