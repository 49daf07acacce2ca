-- Gives a consumer up to n jobs, in order, and up to so many bytes of messages, but one job at least; first acks what the consumer has
-- finished, promotes what is due and reclaims what lapsed consumers held.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   consumer
-- ARGV[3]   n; 0 only promotes and reclaims
-- ARGV[4]   lease, ms from now
-- ARGV[5]   '1' if the jobs are acked by being taken
-- ARGV[6]   how often a job may be delivered where the queue does not say, '' without limit
-- ARGV[7]   bytes of messages that the reply may have
-- ARGV[8…]  ids of jobs to ack, as ack.lua does
-- Result    {'missing', verdicts}, or {'taken', verdicts, now, next event ms, 1 if the order is descending, notes, and for each job {id,
--           score, deliveries, {field, value, …}}}; the notes are the sum of 1 if the queue has a dead letter exchange or 2 if dead
--           jobs wait to be forwarded there, and 4 if ends of tasks are perhaps to be reported (claim_unreported.lua); the next event is now if there is more to take. The verdicts are those on the acks, see _acks.lua
--
-- A message of more bytes than the reply may have comes alone, and without its message: the consumer holds the job, also one that
-- would be acked by being taken, and reads the message with HMGET, which costs the server a fifth (and then acks the job).
--
-- Beside jobs, what stands first in waiting may be expired, delivered too often, or damaged (no hash, or no message in it). Such
-- go to dead with the reason, at most MAX_PER_CALL of them in one call.
--
-- A paused queue gives no job and gives none up; what is due and what lapsed consumers held comes to wait all the same.

local consumer, room, lease, space = ARGV[2], math.min(tonumber(ARGV[3]), MAX_PER_CALL), tonumber(ARGV[4]), tonumber(ARGV[7])
local no_ack = ARGV[5] == '1'

-- What says whether a job may be delivered.
local TERMS = {'expires_at', 'deliveries', 'consumer', 'last_consumer', 'published_at', 'due_at'}

local function map_of(fields)
  local map = {}
  for i = 1, #fields, 2 do
    map[fields[i]] = fields[i + 1]
  end
  return map
end

-- The terms of a job, and the bytes of its message; nil for damage. All fields as well, as pairs, of one that is no work to read.
local function read_terms(id)
  local bytes = size_of(id)
  if bytes <= SMALL_MESSAGE then
    local fields = attempt('HGETALL', JOB .. id)
    local map = fields and map_of(fields)
    if not (map and (map.message or map.payload)) then
      return nil
    end
    return map, bytes, fields
  end
  local found = call('HMGET', JOB .. id, unpack(TERMS))
  local map = {}
  for i, name in ipairs(TERMS) do
    map[name] = found[i] or nil
  end
  return map, bytes
end

-- Counts for how long jobs have waited that are delivered for the first time: from their publish, or from their due time.
local function observe_waits(now, jobs)
  local waits, looked_at = {}, 0
  local first, step = sampling(#jobs)
  for i = first, #jobs, step do
    local published = tonumber(jobs[i].published_at)
    looked_at = looked_at + 1
    append(waits, published and now - math.max(published, tonumber(jobs[i].due_at) or published))
  end
  observe(WAITS, waits, looked_at, #jobs)
end

-- The fields of a job as pairs, but for a message that is longer than a reply may be.
local function read_fields(id, bytes)
  if bytes <= space then
    return call('HGETALL', JOB .. id)
  end
  local fields = {}
  for _, name in ipairs(call('HKEYS', JOB .. id)) do
    if name ~= 'message' and name ~= 'payload' then
      append(fields, name, call('HGET', JOB .. id, name))
    end
  end
  return fields
end

-- Looks at the first jobs of waiting until `room` of them can be delivered. Returns those, the ids of the others, the bytes of the
-- first ones, whether it has stopped before there was no room or no job, and the terms of those never delivered before.
local function select_jobs(now)
  local limit = tonumber(queue.delivery_limit) or tonumber(ARGV[6]) or math.huge
  local chosen, refused, new = {}, {}, {}
  local from, used, freed = 0, 0, 0
  if queue.paused then
    return chosen, refused, used, false, new
  end
  while #chosen < room and #refused < MAX_PER_CALL do
    local heads = call('ZRANGE', WAITING, from, from + room - #chosen - 1, 'WITHSCORES')
    if #heads == 0 then
      break
    end
    from = from + #heads / 2
    for i = 1, #heads, 2 do
      local id, score = heads[i], heads[i + 1]
      local terms, bytes, fields = read_terms(id)
      if not terms then
        dead_letter(now, id, score, 'broken', 'the job has no message')
        count('broken', 1)
        append(refused, id)
      elseif (tonumber(terms.expires_at) or math.huge) <= now then
        account({id}, -1)
        freed = freed + discard(now, id, score, 'expired', 'not delivered in its time')
        append(refused, id)
      elseif (tonumber(terms.deliveries) or 0) >= limit then
        account({id}, -1)
        local last = terms.consumer or terms.last_consumer or 'an unknown consumer'
        dead_letter(now, id, score, 'delivery_limit', 'delivered ' .. terms.deliveries .. ' times, last to ' .. last)
        append(refused, id)
      else
        if #chosen > 0 and used + bytes > space then
          return chosen, refused, used, true, new
        end
        used = used + bytes
        append(new, not terms.deliveries and terms or nil)
        append(chosen, {id, score, (tonumber(terms.deliveries) or 0) + 1, fields or read_fields(id, bytes)})
      end
      if freed > MAX_FREED_BYTES then
        return chosen, refused, used, true, new
      end
    end
  end
  return chosen, refused, used, #refused >= MAX_PER_CALL or #chosen == MAX_PER_CALL, new
end

local function deliver(now, chosen, is_left_out)
  local members, ids = {}, {}
  for _, job in ipairs(chosen) do
    append(members, job[2], job[1])
    append(ids, job[1])
  end
  account(ids, -1)
  if no_ack and not is_left_out then
    in_slices('ZREM', WAITING, ids)
    delete_jobs(ids)
    count('acked', #ids)
  else
    in_slices('ZADD', HELD .. consumer, members)
    for _, job in ipairs(chosen) do
      call('HSET', JOB .. job[1], 'deliveries', job[3], 'delivered_at', now, 'consumer', consumer)
    end
    renew_arrivals(ids)
    in_slices('ZREM', WAITING, ids)
  end
  count('delivered', #ids)
  local again = 0
  for _, job in ipairs(chosen) do
    again = again + (job[3] > 1 and 1 or 0)
  end
  count('redelivered', again)
end

-- The two consumers whose leases end first, each before the end of its lease.
local function first_leases()
  return call('ZRANGE', CONSUMERS, 0, 1, 'WITHSCORES')
end

-- When this consumer should take again, if nothing wakes it: at the first of the leases that end next, of which two are known, and never
-- later than its own lease, because another consumer that begins meanwhile can lapse only after that.
local function next_event(now, next_due, leases)
  local event = math.min(now + lease, next_due)
  for i = 1, #leases, 2 do
    if leases[i] ~= consumer then
      event = math.min(event, tonumber(leases[i + 1]))
    end
  end
  return event
end

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  sample(now)
  local verdicts = #ARGV > 7 and ack(now, consumer, 8) or {}
  if not queue.schema then
    return {'missing', verdicts}
  end
  call('ZADD', CONSUMERS, now + lease, consumer) -- first of all: it must not lapse itself in this call
  local next_due = lowest_score(SCHEDULED)
  if next_due <= now then
    promote(now, MAX_PER_CALL)
    next_due = lowest_score(SCHEDULED)
  end
  local leases = first_leases()
  if tonumber(leases[2]) <= now then
    reclaim(now, MAX_PER_CALL)
    leases = first_leases()
  end
  local chosen, refused, bytes, more, new = select_jobs(now)
  observe_waits(now, new)
  deliver(now, chosen, bytes > space)
  if #chosen == 0 or no_ack then
    renew_lease(CONSUMERS, HELD .. consumer, consumer, now, lease)
  end
  in_slices('ZREM', WAITING, refused)
  if queue.died or queue.sampled then
    trim_dead(now)
  end
  if not finish(now) and room > 0 then
    if #chosen == room and next_due < math.huge then
      wake() -- this consumer is full and may stop looking: another one must know when the next job is due
    else
      call('DEL', WAKE)
    end
  end
  local forwards = has_dead_letters() and 2 or queue.dead_letter_exchange and 1 or 0
  local notes = forwards + (queue.unreported and 4 or 0)
  local event = (more or queue.renewing or queue.unblocking) and now or next_event(now, next_due, leases)
  local taken = {'taken', verdicts, now, event, queue.priority_order == 'descending' and 1 or 0, notes}
  for _, job in ipairs(chosen) do
    append(taken, job)
  end
  return taken
end)
