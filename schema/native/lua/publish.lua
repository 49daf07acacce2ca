-- Stores new jobs, each once however often it is published.
--
-- KEYS      the queue's, see _queue.lua
-- KEYS[15]  what this producer's last publish stored: "first-last,first-last…" of its numbers
-- ARGV[1]   now
-- ARGV[2]   '1' to create a queue that was never declared
-- ARGV[3]   priority order of a queue created here
-- ARGV[4]   the version of the queue's routes that the producer relies on, '' if none
-- ARGV[5]   the numbers of this publish, as KEYS[15] will remember them; '' if its ids have none
-- ARGV[6]   ms for which they are remembered
-- ARGV[7…]  for each job six values: id, its number or '', priority, due ms or '', ms until it expires or '', message
-- Result    {'missing'}: no such queue; {'stale', routes}: the routes have changed; {'overflow', routes}: the queue is at its
--           greatest length and refuses more. Nothing is stored then. Else {'stored', routes, {1 or 0 for each job}, 1 if dead
--           jobs wait to be carried on}: 0 for a job that had been stored before.
--
-- A job that is already taken and acked has no key left to tell that it was stored; the remembered numbers of the last publish
-- do, because a producer only ever repeats its last one. New numbers are higher, so the list is searched for repeats only.

local PUBLISHER = KEYS[15]
local FIRST, WIDTH = 7, 6

local function remembered(memory, number)
  for first, last in string.gmatch(memory, '(%d+)%-(%d+)') do
    if number >= tonumber(first) and number <= tonumber(last) then
      return true
    end
  end
  return false
end

-- Which jobs are new: the positions of their arguments. A key in a job's place that is no job must not pass for a duplicate.
local function choose()
  local memory = call('GET', PUBLISHER) or ''
  local highest = tonumber(string.match(memory, '(%d+)$') or nil) or -1
  local fresh, verdicts, seen = {}, {}, {}
  for i = FIRST, #ARGV, WIDTH do
    local id, number = ARGV[i], tonumber(ARGV[i + 1])
    local kind = call('TYPE', JOB .. id).ok
    if kind ~= 'none' and kind ~= 'hash' then
      refuse('damaged', JOB .. id, 'a ' .. kind .. ' stands where a job belongs')
    end
    local known = kind == 'hash' or seen[id] or (number and number <= highest and remembered(memory, number))
    if not known then
      append(fresh, i)
      seen[id] = true
    end
    append(verdicts, known and 0 or 1)
  end
  return fresh, verdicts
end

-- A priority as a number that is lower the sooner it runs (place.py).
local function rank(priority)
  priority = math.min(priority, tonumber(queue.max_priority) or priority)
  return queue.priority_order == 'descending' and -1 - priority or priority
end

local function expiry(start, own)
  local ttl = math.min(tonumber(own) or math.huge, tonumber(queue.ttl) or math.huge)
  return ttl < math.huge and start + ttl or nil
end

-- Idle consumers wait until the next event they know: they must hear of one that comes before it.
local function schedule(jobs)
  local next_due = lowest(SCHEDULED)
  in_slices('ZADD', SCHEDULED, jobs)
  if lowest(SCHEDULED) < next_due then
    wake()
  end
end

local function store(now, fresh)
  local sequence = call('HINCRBY', META, 'sequence', #fresh) - #fresh
  local waiting, scheduled, hashes = {}, {}, {}
  for n, i in ipairs(fresh) do
    local id, due = ARGV[i], tonumber(ARGV[i + 3]) or now
    local place = rank(tonumber(ARGV[i + 2])) * STEP + sequence + n
    local expires_at = expiry(math.max(due, now), ARGV[i + 4])
    local hash = {'message', ARGV[i + 5], 'published_at', now}
    if expires_at then
      append(hash, 'expires_at', expires_at)
    end
    if due > now then
      append(hash, 'due_at', due)
      append(hash, 'score', place)
      append(scheduled, due, id)
    else
      append(waiting, place, id)
    end
    hashes[n] = hash
  end
  in_slices('ZADD', WAITING, waiting)
  if #scheduled > 0 then
    schedule(scheduled)
  end
  for n, i in ipairs(fresh) do
    call('HSET', JOB .. ARGV[i], unpack(hashes[n]))
  end
  count('published', #fresh)
end

local function is_full(more)
  return queue.max_length and queue.overflow == 'reject-publish'
    and call('ZCARD', WAITING) + call('ZCARD', SCHEDULED) + more > tonumber(queue.max_length)
end

-- Keeps waiting at its greatest length: the first jobs make room for the last.
local function drop_head(now, limit)
  local excess = call('ZCARD', WAITING) - tonumber(queue.max_length)
  if excess <= 0 then
    return
  end
  local heads = call('ZRANGE', WAITING, 0, math.min(excess, limit) - 1, 'WITHSCORES')
  local ids = {}
  for i = 1, #heads, 2 do
    discard(now, heads[i], heads[i + 1], 'maxlen', 'the queue was at its greatest length')
    append(ids, heads[i])
  end
  in_slices('ZREM', WAITING, ids)
end

return answer(function()
  local now = clock()
  open()
  if not queue.schema and ARGV[2] ~= '1' then
    return {'missing'}
  end
  if ARGV[4] ~= '' and ARGV[4] ~= (queue.routes or '0') then
    return {'stale', queue.routes or '0'}
  end
  local fresh, verdicts = choose()
  if #fresh > 0 then
    if is_full(#fresh) then
      return {'overflow', queue.routes or '0'}
    end
    if not queue.schema then
      create_queue(now, ARGV[3])
    end
    store(now, fresh)
    if ARGV[5] ~= '' then
      call('SET', PUBLISHER, ARGV[5], 'PX', ARGV[6])
    end
    if queue.max_length then
      drop_head(now, #fresh + LIMIT)
    end
  end
  local _, left = settle(now)
  if left then
    for _, i in ipairs(fresh) do
      call('PEXPIRE', JOB .. ARGV[i], left)
    end
    call('PEXPIRE', PUBLISHER, queue.expires)
  end
  return {'stored', queue.routes or '0', verdicts, has_letters() and 1 or 0}
end)
