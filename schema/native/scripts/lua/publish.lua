-- Stores new jobs, each once however often it is published.
--
-- KEYS      the queue's, see _queue.lua
-- KEYS[15]  what this producer's last publish stored: "first-last,first-last…" of its numbers
-- KEYS[16]  only for jobs of a batch: the set of the ids that it has stored; a string once it is complete
-- ARGV[1]   now
-- ARGV[2]   '1' to create a queue that was never declared
-- ARGV[3]   priority order of a queue created here
-- ARGV[4]   the version of the queue's routes that the producer relies on, '' if none
-- ARGV[5]   the numbers of this publish, as KEYS[15] will remember them; '' if its ids have none
-- ARGV[6]   ms for which they, and what a batch has stored, are remembered
-- ARGV[7]   how many values each job has: 6, or 8 where one of them has a dedup key
-- ARGV[8…]  for each job: id, its number or '', priority, due ms ("+ms": from now) or '', ms until it expires or '', message;
--           dedup key or '', ms for which it is held or '' until the job ends
-- Result    {'missing'}: no such queue; {'stale', routes}: the routes have changed; {'overflow', routes}: the queue is at its
--           greatest length and refuses more. Nothing is stored then. Else {'stored', routes, {1 or 0 for each job}, 1 if dead
--           jobs wait to be forwarded, 1 if the queue was created, 1 if the TTLs of a temporary queue are not all renewed yet}:
--           0 for a job that had been stored before, or whose dedup key another one holds; -1 for one of a batch that had been
--           stored by somebody else and has not died.
--
-- A job that is already taken and acked has no key left to tell that it was stored; the remembered numbers of the last publish
-- do, because a producer only ever repeats its last one. New numbers are higher, so the list is searched for repeats only. A batch
-- may be repeated in any order, so all of its ids are remembered; its jobs take the place of dead ones that have the same id.

local PUBLISHER, BATCH = KEYS[15], KEYS[16]
local FIRST, WIDTH = 8, tonumber(ARGV[7])
local has_keys = WIDTH > 6

-- Whether the batch has stored a job, or is complete.
local function is_of_batch(id)
  local stored = BATCH and attempt('SISMEMBER', BATCH, id)
  return BATCH and stored ~= 0
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
    local stands = kind == 'hash' and not (BATCH and call('ZSCORE', DEAD, id))
    local is_repeated = seen[id] or is_of_batch(id)
    local known = stands or is_repeated or (number and number <= highest and is_remembered(memory, number))
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
    append(verdicts, not known and 1 or (BATCH and stands and not is_repeated) and -1 or 0)
  end
  return fresh, verdicts, duplicates
end

-- Dead jobs whose ids the new jobs of a batch have end here.
local function replace_dead(fresh)
  for _, i in ipairs(fresh) do
    if call('ZSCORE', DEAD, ARGV[i]) then
      remove_from(DEAD, ARGV[i])
    end
  end
end

-- Remembers what the batch has stored.
local function remember(fresh)
  local ids = {}
  for n, i in ipairs(fresh) do
    ids[n] = ARGV[i]
  end
  in_slices('SADD', BATCH, ids)
  call('PEXPIRE', BATCH, ARGV[6])
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

-- The bytes of the bodies of new jobs.
local function bytes_to_come(fresh)
  local bytes = 0
  for _, i in ipairs(queue.max_bytes and fresh or {}) do
    bytes = bytes + body_bytes(ARGV[i + 5])
  end
  return bytes
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
    if queue.overflow == 'reject-publish' and is_full(#fresh, bytes_to_come(fresh)) then
      return {'overflow', queue.routes or '0'}
    end
    if not queue.schema then
      create_queue(now, ARGV[3])
    end
    call('HINCRBY', META, 'sequence', 0) -- first of all a write that needs memory: a full server is to refuse it (rule 2)
    sample(now)
    if BATCH then
      replace_dead(fresh)
      remember(fresh)
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
