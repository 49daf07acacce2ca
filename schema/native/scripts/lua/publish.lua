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
-- ARGV[7]   how many values each job has: 6, or 8 where one of them has a dedup key
-- ARGV[8…]  for each job: id, its number or '', priority, due ms ("+ms": from now) or '', ms until it expires or '', message;
--           dedup key or '', ms for which it is held or '' until the job ends
-- Result    {'missing'}: no such queue; {'stale', routes}: the routes have changed; {'overflow', routes}: the queue is at its
--           greatest length and refuses more. Nothing is stored then. Else {'stored', routes, {1 or 0 for each job}, 1 if dead
--           jobs wait to be forwarded, 1 if the queue was created, 1 if the TTLs of a temporary queue are not all renewed yet}:
--           0 for a job that had been stored before, or whose dedup key another one holds.
--
-- A job that is already taken and acked has no key left to tell that it was stored; the remembered numbers of the last publish
-- do, because a producer only ever repeats its last one. New numbers are higher, so the list is searched for repeats only.

local PUBLISHER = KEYS[15]
local FIRST, WIDTH = 8, tonumber(ARGV[7])
local has_keys = WIDTH > 6

local function is_remembered(memory, number)
  for first, last in string.gmatch(memory, '(%d+)%-(%d+)') do
    if number >= tonumber(first) and number <= tonumber(last) then
      return true
    end
  end
  return false
end

-- Whether a job that has not ended holds a dedup key, or it is held for a time that is not over.
local function is_unique_held(key)
  local holder = call('GET', UNIQUE .. key)
  if not holder then
    return false
  end
  if attempt('HGET', JOB .. holder, 'unique') ~= key then
    return call('PTTL', UNIQUE .. key) >= 0
  end
  return not (call('ZSCORE', DEAD, holder) or call('ZSCORE', DONE, holder))
end

-- Which jobs are new: the positions of their arguments. A key in a job's place that is no job must not pass for a duplicate.
local function select_new()
  local memory = call('GET', PUBLISHER) or ''
  local highest = tonumber(string.match(memory, '(%d+)$') or nil) or -1
  local fresh, verdicts, seen, seen_keys, duplicates = {}, {}, {}, {}, 0
  for i = FIRST, #ARGV, WIDTH do
    local id, number = ARGV[i], tonumber(ARGV[i + 1])
    local kind = call('TYPE', JOB .. id).ok
    if kind ~= 'none' and kind ~= 'hash' then
      refuse('damaged', JOB .. id, 'a ' .. kind .. ' stands where a job belongs')
    end
    local known = kind == 'hash' or seen[id] or (number and number <= highest and is_remembered(memory, number))
    local key = has_keys and ARGV[i + 6] ~= '' and ARGV[i + 6]
    if key and not known then
      known = seen_keys[key] or is_unique_held(key)
      seen_keys[key] = true
      duplicates = duplicates + (known and 1 or 0)
    end
    if not known then
      append(fresh, i)
      seen[id] = true
    end
    append(verdicts, known and 0 or 1)
  end
  return fresh, verdicts, duplicates
end

local function expiry(start, own)
  local ttl = math.min(tonumber(own) or math.huge, tonumber(queue.ttl) or math.huge)
  return ttl < math.huge and start + ttl or nil
end

-- Gives a new job its dedup key. One that is held for a time is no business of the job any more.
local function hold_unique(id, key, life, hash)
  if life ~= '' then
    call('SET', UNIQUE .. key, id, 'PX', life)
    return
  end
  append(hash, 'unique', key)
  if queue.expires then
    call('SET', UNIQUE .. key, id, 'PX', 2 * queue.expires)
  else
    call('SET', UNIQUE .. key, id)
  end
  if not queue.unique then
    call('HSET', META, 'unique', 1)
    queue.unique = '1'
  end
end

local function due_time(now, text)
  if string.byte(text) == 43 then -- "+"
    return now + text
  end
  return tonumber(text) or now
end

-- Idle consumers wait until the next event they know: they must hear of one that comes before it.
local function schedule(jobs)
  local next_due = lowest_score(SCHEDULED)
  in_slices('ZADD', SCHEDULED, jobs)
  if lowest_score(SCHEDULED) < next_due then
    wake()
  end
end

local function store(now, fresh)
  local sequence = call('HINCRBY', META, 'sequence', #fresh) - #fresh
  local waiting, scheduled, hashes = {}, {}, {}
  for n, i in ipairs(fresh) do
    local id, due = ARGV[i], due_time(now, ARGV[i + 3])
    local score = rank(tonumber(ARGV[i + 2])) * RANK_STEP + sequence + n
    local expires_at = expiry(math.max(due, now), ARGV[i + 4])
    local hash = {'message', ARGV[i + 5], 'published_at', now}
    if expires_at then
      append(hash, 'expires_at', expires_at)
    end
    if due > now then
      append(hash, 'due_at', due)
      append(hash, 'score', score)
      append(scheduled, due, id)
    else
      append(waiting, score, id)
    end
    if has_keys and ARGV[i + 6] ~= '' then
      hold_unique(id, ARGV[i + 6], ARGV[i + 7], hash)
    end
    hashes[n] = hash
  end
  in_slices('ZADD', WAITING, waiting)
  for i = 2, #waiting, 2 do
    renew_arrivals({waiting[i]})
  end
  if #scheduled > 0 then
    schedule(scheduled)
  end
  for n, i in ipairs(fresh) do
    call('HSET', JOB .. ARGV[i], unpack(hashes[n]))
  end
  if queue.max_bytes then
    for i = 2, #waiting, 2 do
      account({waiting[i]}, 1)
    end
  end
  count('published', #fresh)
end

-- How many jobs, and how many bytes, are more than the queue may have waiting.
local function excess()
  local jobs = queue.max_length and call('ZCARD', WAITING) - queue.max_length or 0
  local bytes = queue.max_bytes and (call('HGET', META, 'bytes') or 0) - queue.max_bytes or 0
  return jobs, bytes
end

-- Whether the queue rejects so many jobs more.
local function is_full(fresh)
  if queue.overflow ~= 'reject-publish' then
    return false
  end
  local jobs, bytes = excess()
  if queue.max_bytes then
    for _, i in ipairs(fresh) do
      bytes = bytes + body_bytes(ARGV[i + 5])
    end
  end
  return bytes > 0 or (queue.max_length and jobs + call('ZCARD', SCHEDULED) + #fresh > 0)
end

-- Keeps waiting at its greatest length: the first jobs make room for the last.
local function drop_head(now, limit)
  local jobs, bytes = excess()
  local dropped, freed = {}, 0
  while #dropped < limit and freed <= MAX_FREED_BYTES and (jobs > #dropped or bytes > 0) do
    local head = call('ZRANGE', WAITING, #dropped, #dropped, 'WITHSCORES')
    if not head[1] then
      break
    end
    if queue.max_bytes then
      bytes = bytes - bytes_of({head[1]})
      account({head[1]}, -1)
    end
    freed = freed + discard(now, head[1], head[2], 'maxlen', 'the queue was at its greatest length')
    append(dropped, head[1])
  end
  in_slices('ZREM', WAITING, dropped)
end

return reply_of(function()
  local now = clock()
  open_queue()
  if not queue.schema and ARGV[2] ~= '1' then
    return {'missing'}
  end
  if ARGV[4] ~= '' and ARGV[4] ~= (queue.routes or '0') then
    return {'stale', queue.routes or '0'}
  end
  local fresh, verdicts, duplicates = select_new()
  local created = not queue.schema and 1 or 0
  if #fresh > 0 then
    if is_full(fresh) then
      return {'overflow', queue.routes or '0'}
    end
    if not queue.schema then
      create_queue(now, ARGV[3])
    end
    store(now, fresh)
    if queue.max_length or queue.max_bytes then
      drop_head(now, #fresh + MAX_PER_CALL)
    end
  end
  if ARGV[5] ~= '' then
    if #fresh + duplicates > 0 then
      call('SET', PUBLISHER, ARGV[5], 'PX', ARGV[6])
    else
      call('PEXPIRE', PUBLISHER, ARGV[6]) -- a write for WAIT to wait for: the first one was perhaps another connection's
    end
  end
  count('deduplicated', duplicates)
  local _, left = finish(now)
  if left then
    for _, i in ipairs(fresh) do
      call('PEXPIRE', JOB .. ARGV[i], left)
    end
    call('PEXPIRE', PUBLISHER, queue.expires)
  end
  return {'stored', queue.routes or '0', verdicts, has_dead_letters() and 1 or 0, created, queue.renewing and 1 or 0}
end)
