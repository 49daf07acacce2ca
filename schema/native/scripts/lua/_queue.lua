-- What every script about one queue begins with, after _common.lua. Place is truth: a job's state is the key it stands in.
--
-- KEYS[1] meta       hash    schema, sequence, arguments, the SETTINGS below, counters (published, delivered, acked …)
-- KEYS[2] waiting    zset    id by rank(priority) * 2^45 + sequence (waiting_score.py); popped in ascending order
-- KEYS[3] scheduled  zset    id by due time, ms
-- KEYS[4] consumers  zset    consumer by lease end, ms; one that holds nothing has two leases
-- KEYS[5] dead       zset    id by the time it was given up, ms
-- KEYS[6] done       zset    id by the time it was acked, ms; only with a retention
-- KEYS[7] wake       list    at most one token; carries no job
-- KEYS[8] blocked    set     ids that wait for other jobs of this queue (imported; nothing is published into it)
-- KEYS[9] outbox     zset    dead ids that are still to go to the dead letter exchange, by a number that only grows
--          moves      zset    dead ids that are on the way to another queue (move.lua), by a number that only grows; named after meta
--          letters    zset    dead ids that the scripts have given up, by the time, ms: those that count for the limits of dead letters
--                             (trim_dead). Migrated dead jobs are not among them; named after meta
--          unreported zset    dead ids of Celery tasks whose end no worker has reported yet, by the time, ms, from which a worker may
--                             claim them (claim_unreported.lua); named after meta
-- KEYS[10] job:      prefix of the job hashes: message (or payload and name), deliveries, delivered_at, consumer (last holder),
--                    last_consumer (the holder that gave the job back), published_at, due_at, expires_at; score (that in waiting)
--                    once it has left waiting and held for another key; reason and error while dead; unique, the dedup key that
--                    it holds until it ends. Fields that no script names are left alone.
-- KEYS[11] held:     prefix of the consumers' zsets: id by its score in waiting, so that going back needs no look at the hash
-- KEYS[12] needs:    prefix of sets: the ids that a blocked job still waits for
-- KEYS[13] unblocks: prefix of sets: the ids that wait for this job, which may be gone or still to come
-- KEYS[14] unique:   prefix of strings: the id of the job that holds a dedup key; with a TTL, if for a time, whatever becomes of it
--
-- Wake rule: after every script, waiting is empty, or the queue is paused, or a token is in `wake` (until a consumer pops it, who must
-- then take).
-- Temporary queues (x-expires): every key of the queue carries a TTL, which finish() renews. No other live key has one.

local META, WAITING, SCHEDULED, CONSUMERS, DEAD, DONE, WAKE, BLOCKED, OUTBOX = unpack(KEYS, 1, 9)
local JOB, HELD, NEEDS, UNBLOCKS, UNIQUE = unpack(KEYS, 10, 14)
local BASE = string.sub(META, 1, -5)
local MOVES, LETTERS, UNREPORTED = BASE .. 'moves', BASE .. 'letters', BASE .. 'unreported'

local SCHEMA = 1
-- What lies between the scores of two ranks in waiting.
local RANK_STEP = 2 ^ 45

-- Sequences below this belong to migrated jobs, which so stay ahead of what is published while they are being written.
local IMPORTED = '1099511627776' -- 2^40

-- Bytes of messages that one call reads (2 to 3 ms a MB, because Lua and the reply have copies of their own), and that one call
-- frees (0.2 ms a MB): it stops after the job that exceeds them.
local MAX_READ_BYTES = 4 * 1024 * 1024
local MAX_FREED_BYTES = 64 * 1024 * 1024

-- A message of more bytes is not read to find out how long its head is.
local SMALL_MESSAGE = 16 * 1024

-- How many TTLs one call renews: some 10 ms.
local MAX_RENEWALS = 5000

-- The fields of meta that open_queue() reads into `queue`: text, nil where there is none. All but the first and the last line come
-- from the queue's arguments (arguments.py says from which); `unique` stands there once a job has held a dedup key, `weighed` while
-- the account of the bytes is not complete (continue_accounting), `renewing` while TTLs are renewed (continue_ttl_renewal),
-- `unblocking` while jobs are let go on (unblock), `paused` (when, ms) while nothing is to be taken (pause.lua), `history` is 'off'
-- where none is kept, `next_sample` when the next slot of it is closed, ms (_history.lua), `unreported` is set while that key may
-- have members.
local SETTINGS = {
  'schema', 'expires', 'retention', 'ttl', 'max_length', 'max_bytes', 'overflow', 'max_priority', 'delivery_limit',
  'dead_letter_exchange', 'priority_order', 'routes', 'horizon', 'unique', 'weighed', 'renewing',
  'unblocking', 'paused', 'history', 'next_sample', 'unreported',
}
local queue = {}

-- Sets a field of meta, or removes it for nil.
local function set_meta(name, value)
  queue[name] = value
  if value then
    call('HSET', META, name, value)
  else
    call('HDEL', META, name)
  end
end

-- Reads the queue's settings, and refuses a keyspace that a newer ferryman has written.
local function open_queue()
  local found = call('HMGET', META, unpack(SETTINGS))
  for i = 1, #SETTINGS do
    if found[i] then -- assigning nil would make room for it
      queue[SETTINGS[i]] = found[i]
    end
  end
  if queue.schema and not (tonumber(queue.schema) and tonumber(queue.schema) <= SCHEMA) then
    refuse('schema', queue.schema)
  end
end

-- Writes what makes a queue exist. Its routes begin at the time, so that no cache of a deleted queue of this name fits.
local function create_queue(now, order)
  queue.schema, queue.priority_order, queue.routes = tostring(SCHEMA), order, string.format('%.0f', now)
  call('HSET', META, 'schema', queue.schema, 'priority_order', order, 'routes', queue.routes, 'sequence', IMPORTED, 'next_sample', 0)
end

-- Whether anybody has declared the queue, be it without arguments: a publish can make one as well.
local function is_declared()
  return call('HEXISTS', META, 'arguments') == 1
end

local function mark_declared()
  if not is_declared() then
    call('HSET', META, 'arguments', '{}')
  end
end

-- A first write that needs no memory and changes nothing (rule 2): removes the members from rank 1 to rank 0.
local function first_write()
  call('ZREMRANGEBYRANK', WAITING, 1, 0)
end

-- Adds to a counter; a queue that was deleted meanwhile counts nothing, and is not created by counting.
local function count(name, number)
  if queue.schema and number > 0 then
    call('HINCRBY', META, name, number)
  end
end

-- Puts a token where an idle consumer waits, unless one is there.
local function wake()
  if call('EXISTS', WAKE) == 0 then
    call('RPUSH', WAKE, '1')
  end
end

-- The bytes of a job's message, or of the payload that stands in its place.
local function size_of(id)
  local bytes = attempt('HSTRLEN', JOB .. id, 'message') or 0
  return bytes > 0 and bytes or attempt('HSTRLEN', JOB .. id, 'payload') or 0
end

-- The bytes of a message's body: what comes after its head. The head of a long message counts too: it is little beside its body.
local function body_bytes(message)
  return #message - (#message <= SMALL_MESSAGE and string.find(message, '\n', 1, true) or 0)
end

local function bytes_of(ids)
  local bytes = 0
  for _, id in ipairs(ids) do
    local size = attempt('HSTRLEN', JOB .. id, 'message') or 0
    if size > SMALL_MESSAGE then
      bytes = bytes + size
    elseif size > 0 then
      bytes = bytes + body_bytes(call('HGET', JOB .. id, 'message'))
    else
      bytes = bytes + (attempt('HSTRLEN', JOB .. id, 'payload') or 0)
    end
  end
  return bytes
end

-- Of jobs that stand in waiting, those that are in the account: all, but while it is begun only the first ones are.
local function accounted(ids)
  if not queue.weighed then
    return ids
  end
  local counted = {}
  for _, id in ipairs(ids) do
    if tonumber(call('ZSCORE', WAITING, id)) <= tonumber(queue.weighed) then
      append(counted, id)
    end
  end
  return counted
end

-- Where a queue limits the bytes that wait, keeps account of them in meta `bytes`: called with the ids that come to waiting (1) or
-- leave it (-1), while they stand there and their hashes are there.
local function account(ids, sign)
  local bytes = queue.max_bytes and bytes_of(accounted(ids)) or 0
  if bytes > 0 then -- Redis takes no "-0"
    call('HINCRBY', META, 'bytes', sign * bytes)
  end
end

-- Goes on with the account of a queue that may have been full when it was begun, some jobs a call: meta `weighed` is the score up
-- to which they are counted.
local function continue_accounting()
  local heads = call('ZRANGEBYSCORE', WAITING, '(' .. queue.weighed, '+inf', 'WITHSCORES', 'LIMIT', 0, MAX_PER_CALL)
  local ids = {}
  for i = 1, #heads, 2 do
    append(ids, heads[i])
  end
  call('HINCRBY', META, 'bytes', bytes_of(ids))
  set_meta('weighed', #ids == MAX_PER_CALL and heads[#heads] or nil)
end

-- Begins that account; finish() goes on with it.
local function begin_accounting()
  call('HSET', META, 'bytes', 0)
  set_meta('weighed', '-inf')
end

-- Lets others have the dedup key that a job holds.
local function release_unique(id)
  local key = attempt('HGET', JOB .. id, 'unique')
  if key and attempt('GET', UNIQUE .. key) == id then
    call('DEL', UNIQUE .. key)
  end
end

local function each_held(visit)
  for _, consumer in ipairs(call('ZRANGE', CONSUMERS, 0, -1)) do
    visit(HELD .. consumer)
  end
end

-- Gives a job the TTL that jobs of its queue have: none, if the queue is not temporary any more.
local function renew_job_ttl(id)
  local key = JOB .. id
  if queue.expires then
    call('PEXPIRE', key, 2 * queue.expires)
    return
  end
  call('PERSIST', key)
  local unique = attempt('HGET', key, 'unique')
  if unique then
    call('PERSIST', UNIQUE .. unique)
  end
end

-- Goes on with the renewal of the TTLs of all jobs, some a call. Meta `renewing` is how many of the first jobs of a place are still
-- to do, and the place: from the end, because jobs leave at the front. The places: four zsets, then what consumers hold, by name. A
-- temporary queue has no blocked jobs: nothing is published into that set.
local function continue_ttl_renewal()
  local zsets = {waiting = WAITING, scheduled = SCHEDULED, dead = DEAD, done = DONE}
  local after = {waiting = 'scheduled', scheduled = 'dead', dead = 'done'}

  -- The place that comes next; nil after the last.
  local function next_place(place)
    if after[place] then
      return after[place]
    end
    local held, first = string.match(place, '^held:(.*)$'), nil
    for _, consumer in ipairs(call('ZRANGE', CONSUMERS, 0, -1)) do
      if (not held or consumer > held) and (not first or consumer < first) then
        first = consumer
      end
    end
    return first and 'held:' .. first
  end

  local left, place = string.match(queue.renewing, '^(%d+) (.*)$')
  local most = MAX_RENEWALS
  while place and most > 0 do
    local key = zsets[place] or HELD .. string.match(place, '^held:(.*)$')
    left = math.min(tonumber(left), call('ZCARD', key))
    local from = math.max(0, left - most)
    if left > 0 then
      for _, id in ipairs(call('ZRANGE', key, from, left - 1)) do
        renew_job_ttl(id)
      end
    end
    most = most - (left - from) - 1
    left = from
    if left == 0 then
      place, left = next_place(place), math.huge
    end
  end
  set_meta('renewing', place and string.format('%.0f ', math.min(left, 2 ^ 53)) .. place or nil)
end

local function begin_ttl_renewal()
  set_meta('renewing', string.format('%.0f waiting', 2 ^ 53))
end

-- Called for jobs that come to a place, if a renewal may be under way: it has perhaps been there, and counts from the end.
local function renew_arrivals(ids)
  if queue.renewing and #ids > 0 then
    local left, place = string.match(queue.renewing, '^(%d+) (.*)$')
    set_meta('renewing', string.format('%.0f ', math.min(left + #ids, 2 ^ 53)) .. place)
    for _, id in ipairs(ids) do
      renew_job_ttl(id)
    end
  end
end

-- Renews the TTLs of a temporary queue. Returns the ms that its jobs have left.
-- The jobs must outlive their queue, but renewing thousands of TTLs at each poll would cost too much. So they expire at a common
-- horizon (meta `horizon`), never before their queue, which moves on by leaps: at most once in half of `expires`. A leap may take
-- several calls, and begins so early that the jobs have that half to spare.
local function renew_ttls(now)
  local expires, horizon = tonumber(queue.expires), tonumber(queue.horizon) or 0
  if now + 1.5 * expires > horizon and not queue.renewing then
    horizon = now + 2 * expires
    call('HSET', META, 'horizon', horizon)
    begin_ttl_renewal()
  end
  if queue.renewing then
    continue_ttl_renewal()
  end
  for key = 1, 9 do
    call('PEXPIRE', KEYS[key], expires)
  end
  call('PEXPIRE', MOVES, expires)
  call('PEXPIRE', LETTERS, expires)
  call('PEXPIRE', UNREPORTED, expires)
  each_held(function(key) call('PEXPIRE', key, expires) end)
  return horizon - now
end

-- A number as a score in waiting; 0, the first of the middle priority, for what is none.
local function sound_score(score)
  if score and score == math.floor(score) and math.abs(score) <= 2 ^ 53 then
    return score
  end
  return 0
end

-- A job's score in waiting, as its hash remembers it.
local function waiting_score_of(id)
  return sound_score(tonumber(attempt('HGET', JOB .. id, 'score') or nil))
end

-- Lets the jobs go on that have waited for one only that has ended, at most MAX_PER_CALL: meta `unblocking` has the ids of those
-- for which there are more, a line each. Returns whether there were any.
local function unblock(id)
  local dependents = call('SRANDMEMBER', UNBLOCKS .. id, MAX_PER_CALL)
  for _, dependent in ipairs(dependents) do
    call('SREM', NEEDS .. dependent, id)
    if call('EXISTS', NEEDS .. dependent) == 0 and call('SISMEMBER', BLOCKED, dependent) == 1 then
      call('ZADD', WAITING, waiting_score_of(dependent), dependent)
      account({dependent}, 1)
      call('SREM', BLOCKED, dependent)
    end
  end
  in_slices('SREM', UNBLOCKS .. id, dependents)
  if #dependents == MAX_PER_CALL and call('EXISTS', UNBLOCKS .. id) == 1 then
    set_meta('unblocking', id .. '\n' .. (queue.unblocking or ''))
  end
  return #dependents > 0
end

-- The end of every script that moved something: the wake rule, the TTLs of a temporary queue, and what else takes several calls.
-- Returns whether jobs wait to be taken, and the ms that the jobs of a temporary queue have left (false or nil for every other).
local function finish(now)
  if queue.unblocking then
    local id, rest = string.match(queue.unblocking, '^([^\n]*)\n(.*)$')
    set_meta('unblocking', rest ~= '' and rest or nil)
    unblock(id)
  end
  local waits = call('EXISTS', WAITING) == 1
  if waits and queue.paused then
    waits = false
  elseif waits then
    wake()
  elseif queue.max_bytes then
    call('HSET', META, 'bytes', 0)
    if queue.weighed then
      set_meta('weighed', nil)
    end
  end
  if queue.weighed and queue.max_bytes then
    continue_accounting()
  end
  if queue.renewing and not queue.expires then
    continue_ttl_renewal()
  end
  return waits, queue.schema and queue.expires and renew_ttls(now)
end

-- The lowest score of a zset; infinite for none.
local function lowest_score(key)
  return tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) or math.huge
end

-- How many scheduled jobs are due: they wait as those in waiting do, though nobody has looked and moved them there.
local function count_due(now)
  return call('ZCOUNT', SCHEDULED, '-inf', now)
end

-- Moves due jobs to waiting, at most `limit`. Returns how many.
local function promote(now, limit)
  local due = call('ZRANGEBYSCORE', SCHEDULED, '-inf', now, 'LIMIT', 0, limit)
  local members = {}
  for _, id in ipairs(due) do
    append(members, waiting_score_of(id), id)
  end
  in_slices('ZADD', WAITING, members)
  account(due, 1)
  renew_arrivals(due)
  in_slices('ZREM', SCHEDULED, due)
  return #due
end

-- Puts a dead job into the outbox, for a client to forward to the dead letter exchange, which is in another cluster slot; or into
-- the moves, for a client to bring to another queue. The number tells the queues there what they have already. It begins at the
-- time, so that a deleted queue's numbers never come again.
local function add_to_outgoing(outgoing, now, id)
  local number = math.max((tonumber(queue.posted or call('HGET', META, 'posted') or nil) or 0) + 1, now * 100)
  set_meta('posted', string.format('%.0f', number))
  call('ZADD', outgoing, string.format('%.0f', number), id)
end

-- Whether dead jobs wait for a client to forward them; false where they never do.
local function has_dead_letters()
  return queue.dead_letter_exchange and call('EXISTS', OUTBOX) == 1
end

-- Whether a job is perhaps a Celery task. The worker that reports its end reads the message again.
local function may_be_task(id)
  local bytes = attempt('HSTRLEN', JOB .. id, 'message') or 0
  if bytes == 0 then
    return attempt('HEXISTS', JOB .. id, 'name') == 1
  end
  return bytes > SMALL_MESSAGE or string.find(call('HGET', JOB .. id, 'message'), '"task"', 1, true) ~= nil
end

-- Notes that a worker has to report the end of a dead job, if it is a task that the broker has ended, and wakes an idle one. (A worker
-- that rejects a message knows what it does.)
local function require_report(id, reason)
  local is_brokers = reason == 'expired' or reason == 'maxlen' or reason == 'delivery_limit' or reason == 'failed'
  if is_brokers and may_be_task(id) then
    call('ZADD', UNREPORTED, 0, id)
    if not queue.unreported then
      set_meta('unreported', '1')
    end
    wake()
  end
end

-- Keeps account of the bytes of dead letters in meta `dead_bytes`: called with ids of dead jobs that stand in LETTERS from now on (1)
-- or as long as they do (-1), while their hashes are there.
local function account_dead(ids, sign)
  local bytes = 0
  for _, id in ipairs(ids) do
    bytes = bytes + (call('ZSCORE', LETTERS, id) and size_of(id) or 0)
  end
  if bytes > 0 and call('HINCRBY', META, 'dead_bytes', sign * bytes) < 0 then
    call('HSET', META, 'dead_bytes', 0)
  end
end

-- Gives a job up: it stands in dead, with the reason. The caller removes it from where it was. A task that goes to a dead letter
-- exchange has not ended: a worker may take it from there.
local function dead_letter(now, id, score, reason, text)
  call('ZADD', DEAD, now, id)
  attempt('HSET', JOB .. id, 'score', score, 'reason', reason, 'error', text)
  call('ZADD', LETTERS, now, id)
  account_dead({id}, 1)
  queue.died = (queue.died or 0) + 1
  if queue.unique then
    release_unique(id)
  end
  if queue.dead_letter_exchange then
    add_to_outgoing(OUTBOX, now, id)
  else
    require_report(id, reason)
  end
  renew_arrivals({id})
  if queue.expires then
    attempt('PEXPIRE', JOB .. id, 2 * queue.expires)
  end
  count('dead', 1)
end

-- Deletes the hashes of jobs.
local function delete_jobs(ids)
  local keys = {}
  for i, id in ipairs(ids) do
    keys[i] = JOB .. id
    if queue.unique then
      release_unique(id)
    end
  end
  for first = 1, #keys, SLICE do
    call('DEL', unpack(keys, first, math.min(first + SLICE - 1, #keys)))
  end
end

-- A dead job for a reply, with its number in the outbox and the time of its death: {id, number, score, time, deliveries, fields}.
local function dead_letter_reply(id, number, time)
  local deliveries = tonumber(attempt('HGET', JOB .. id, 'deliveries') or nil) or 0
  return {id, number, string.format('%.0f', waiting_score_of(id)), time, deliveries, attempt('HGETALL', JOB .. id) or {}}
end

-- Takes jobs out of dead and out of the keys that say what is still to be done with them. Call account_dead before.
local function remove_dead(ids)
  for _, key in ipairs({OUTBOX, MOVES, UNREPORTED, LETTERS, DEAD}) do
    in_slices('ZREM', key, ids)
  end
end

-- Whether a dead job is on the way to another queue, and may be there already.
local function is_moving(id)
  return attempt('HEXISTS', JOB .. id, 'moved_to') == 1
end

local function has_message(id)
  return attempt('HEXISTS', JOB .. id, 'message') == 1 or attempt('HEXISTS', JOB .. id, 'payload') == 1
end

-- Gives a job its dedup key back, unless another one has it by now.
local function hold_unique_again(id)
  local key = attempt('HGET', JOB .. id, 'unique')
  if key then
    call('SET', UNIQUE .. key, id, 'NX')
  end
end

-- Puts a dead job that has a message back where it waited, with a clean record.
local function revive(id)
  call('ZADD', WAITING, waiting_score_of(id), id)
  account({id}, 1)
  if queue.unique then
    hold_unique_again(id)
  end
  renew_arrivals({id})
  call('HDEL', JOB .. id, 'reason', 'error', 'deliveries', 'consumer', 'last_consumer', 'expires_at')
  account_dead({id}, -1)
  remove_dead({id})
end

-- Deletes a job from the zset in which it stands.
local function remove_from(place, id)
  if place == WAITING then
    account({id}, -1)
  elseif place == DEAD then
    account_dead({id}, -1)
  end
  delete_jobs({id})
  if place == DEAD then
    remove_dead({id})
  else
    call('ZREM', place, id)
  end
end

-- Deletes a blocked job. One that waits for more than MAX_PER_CALL others goes in several calls, and stays blocked until the last
-- one: false says that this was not it.
local function remove_blocked(id)
  local needed = call('SRANDMEMBER', NEEDS .. id, MAX_PER_CALL)
  for _, other in ipairs(needed) do
    call('SREM', UNBLOCKS .. other, id)
  end
  if #needed == MAX_PER_CALL and call('SCARD', NEEDS .. id) > MAX_PER_CALL then
    in_slices('SREM', NEEDS .. id, needed)
    return false
  end
  call('DEL', NEEDS .. id)
  delete_jobs({id})
  call('SREM', BLOCKED, id)
  return true
end

-- The role of the place where a job stands, and that place if it is a zset of the queue's own; nothing for one that stands nowhere.
local function place_of(id)
  local consumer = attempt('HGET', JOB .. id, 'consumer')
  if consumer and call('ZSCORE', HELD .. consumer, id) then
    return 'held'
  end
  for _, place in ipairs({{'waiting', WAITING}, {'scheduled', SCHEDULED}, {'dead', DEAD}, {'done', DONE}}) do
    if call('ZSCORE', place[2], id) then
      return unpack(place)
    end
  end
  if call('SISMEMBER', BLOCKED, id) == 1 then
    return 'blocked'
  end
end

-- A priority as a number that is lower the sooner it runs (waiting_score.py).
local function rank(priority)
  priority = math.min(priority, tonumber(queue.max_priority) or priority)
  return queue.priority_order == 'descending' and -1 - priority or priority
end

-- Takes a job out of the queue for which its time or its room has run out: into dead with the reason, but a temporary queue (of
-- events, of replies) keeps only tasks, whose end is reported: no operator reads its dead letters. The caller removes it from where
-- it was. Returns how many bytes that has freed.
local function discard(now, id, score, reason, text)
  count(reason, 1)
  if queue.expires and not queue.dead_letter_exchange and not may_be_task(id) then
    local freed = size_of(id)
    delete_jobs({id})
    return freed
  end
  dead_letter(now, id, score, reason, text)
  return 0
end

-- The first of some jobs whose messages a call may free.
local function freeable(ids)
  local some, bytes = {}, 0
  for _, id in ipairs(ids) do
    if bytes > MAX_FREED_BYTES then
      break
    end
    bytes = bytes + size_of(id)
    append(some, id)
  end
  return some
end

-- Deletes up to `limit` jobs that stand in a key, fewer if their messages are large. Returns how many, and whether there may be more.
local function clear(key, limit)
  local ids = call('ZRANGE', key, 0, limit - 1)
  local some = freeable(ids)
  if key == WAITING then
    account(some, -1)
  elseif key == DEAD then
    account_dead(some, -1)
  end
  delete_jobs(some)
  if key == DEAD then
    remove_dead(some)
  else
    in_slices('ZREM', key, some)
  end
  return #some, #some == limit or #some < #ids
end

-- Drops dead letters beyond the limits: of the oldest ones first those that have expired or made room, then the others. Those that
-- are on the way to an exchange or a queue stay, and those whose end is to be reported, unless there are twice as many as allowed.
-- What is dropped is counted (`dropped`). The limits are in meta (declare.lua); 0 there is without limit.
local function trim_dead(now)
  local limits = call('HMGET', META, 'dead_limit', 'dead_max_bytes', 'dead_ttl')

  local function limit(at, usual)
    local given = tonumber(limits[at] or nil) or usual
    return given > 0 and given or math.huge
  end

  local most, most_bytes = limit(1, 10000), limit(2, 64 * 1024 * 1024)
  local too_old = now - limit(3, 30 * 86400 * 1000)
  local number, bytes = call('ZCARD', LETTERS), tonumber(call('HGET', META, 'dead_bytes') or nil) or 0
  if bytes > most_bytes and number <= MAX_PER_CALL then -- few are counted anew: a repair may have removed some
    call('HSET', META, 'dead_bytes', 0)
    account_dead(call('ZRANGE', LETTERS, 0, -1), 1)
    bytes = tonumber(call('HGET', META, 'dead_bytes'))
  end
  if number <= most and bytes <= most_bytes and lowest_score(LETTERS) >= too_old then
    return
  end
  local heads = call('ZRANGE', LETTERS, 0, (queue.died or 0) + 99, 'WITHSCORES') -- more than have died in this call
  local dropped, is_dropped, freed = {}, {}, 0

  -- What has left dead without these scripts, which an older version or a repair does, is no letter any more.
  for i = 1, #heads, 2 do
    if not call('ZSCORE', DEAD, heads[i]) then
      account_dead({heads[i]}, -1)
      call('ZREM', LETTERS, heads[i])
      is_dropped[heads[i]] = true
      number = number - 1
    end
  end

  local function is_kept(id)
    return call('ZSCORE', OUTBOX, id) or call('ZSCORE', MOVES, id)
      or call('ZSCORE', UNREPORTED, id) and number <= 2 * most and bytes <= 2 * most_bytes
  end

  local function drop(is_chosen)
    for i = 1, #heads, 2 do
      local id = heads[i]
      if freed > MAX_FREED_BYTES then
        return
      end
      if not is_dropped[id] and is_chosen(id, tonumber(heads[i + 1])) and not is_kept(id) then
        local size = size_of(id)
        append(dropped, id)
        is_dropped[id] = true
        number, bytes, freed = number - 1, bytes - size, freed + size
      end
    end
  end

  local function is_beyond()
    return number > most or bytes > most_bytes
  end

  drop(function(_, died_at) return died_at < too_old end)
  drop(function(id)
    local reason = is_beyond() and attempt('HGET', JOB .. id, 'reason')
    return reason == 'expired' or reason == 'maxlen'
  end)
  drop(is_beyond)
  account_dead(dropped, -1)
  delete_jobs(dropped)
  remove_dead(dropped)
  count('dropped', #dropped)
end
