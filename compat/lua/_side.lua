-- Side keys: who holds which job of a foreign queue, until when, and what was published last (compat/side.py has the table).
--
-- KEYS[1] of every script that uses this is the root of the side keys, and its queue is what it passes here.

local SIDE = KEYS[1]

-- How long a producer's last publication is remembered, ms.
local REMEMBERED = 600000

-- A first write that needs no memory and changes nothing, so that a full server can be drained.
local function first_write()
  call('DEL', SIDE .. 'none')
end

-- The arguments from this one on.
local function args_from(first)
  local values = {}
  for i = first, #ARGV do
    append(values, ARGV[i])
  end
  return values
end

-- The same as a set.
local function set_from(first)
  local set = {}
  for i = first, #ARGV do
    set[ARGV[i]] = true
  end
  return set
end

-- A word in what Celery knows of a job: its `task`, or the `id` of that. Nil where it is not told, and for what a migration has left.
local function celery_word(text, name)
  local fine, part = decode_json(text or '')
  local word = fine and type(part) == 'table' and part.as_of == nil and part[name]
  return type(word) == 'string' and word or nil
end

-- Tasks of jobs that are left for others, because the consumer does not know them: so many are named.
local MOST_UNKNOWN = 10
local unknown, is_unknown = {}, {}

local function note_unknown(task)
  if not is_unknown[task] and #unknown < MOST_UNKNOWN then
    is_unknown[task] = true
    append(unknown, task)
  end
end

-- Notes that a consumer holds a job from now on.
local function hold(queue, consumer, id)
  call('HSET', SIDE .. 'held:' .. queue, id, consumer)
end

-- Who holds a job; false if nobody of ours does.
local function holder_of(queue, id)
  return call('HGET', SIDE .. 'held:' .. queue, id)
end

-- Whether this consumer holds a job.
local function holds(queue, consumer, id)
  return holder_of(queue, id) == consumer
end

-- A run has ended. `is_over`: so has the job, and what was remembered of it goes.
local function let_go(queue, id, is_over)
  call('HDEL', SIDE .. 'held:' .. queue, id)
  if is_over then
    call('HDEL', SIDE .. 'lapses:' .. queue, id)
    call('HDEL', SIDE .. 'extra:' .. queue, id)
  end
end

-- The ids that a consumer holds, at most `limit` (none: all).
local function held_by(queue, consumer, limit)
  local all, ids = call('HGETALL', SIDE .. 'held:' .. queue), {}
  for i = 1, #all, 2 do
    if all[i + 1] == consumer and #ids < (limit or math.huge) then
      append(ids, all[i])
    end
  end
  return ids
end

-- Begins or extends a consumer's lease.
local function lease_to(queue, consumer, until_ms)
  call('ZADD', SIDE .. 'consumers:' .. queue, until_ms, consumer)
  call('SADD', SIDE .. 'queues', queue)
end

-- Extends a lease that has not lapsed. Whether there was one.
local function renew_lease(queue, consumer, until_ms)
  if not call('ZSCORE', SIDE .. 'consumers:' .. queue, consumer) then
    return false
  end
  call('ZADD', SIDE .. 'consumers:' .. queue, until_ms, consumer)
  return true
end

-- A consumer has gone.
local function end_lease(queue, consumer)
  call('ZREM', SIDE .. 'consumers:' .. queue, consumer)
  if call('EXISTS', SIDE .. 'consumers:' .. queue) == 0 then
    call('SREM', SIDE .. 'queues', queue)
  end
end

-- When the first lease of another consumer of a queue ends, ms; math.huge if there is none.
local function other_lease_end(queue, consumer)
  local leases = call('ZRANGE', SIDE .. 'consumers:' .. queue, 0, 1, 'WITHSCORES')
  for i = 1, #leases, 2 do
    if leases[i] ~= consumer then
      return tonumber(leases[i + 1])
    end
  end
  return math.huge
end

-- The queues that have consumers of ours.
local function served_queues()
  return call('SMEMBERS', SIDE .. 'queues')
end

-- Calls `give_back(id, lapses, consumer)` for each job of consumers whose lease has ended, at most `limit` jobs, and ends those
-- leases. `lapses` is how often that has happened to the job, this time included. Returns how many jobs there were.
local function reclaim(queue, now, limit, give_back)
  local count = 0
  for _, consumer in ipairs(call('ZRANGEBYSCORE', SIDE .. 'consumers:' .. queue, '-inf', now, 'LIMIT', 0, limit)) do
    local ids = held_by(queue, consumer, limit - count)
    for _, id in ipairs(ids) do
      let_go(queue, id)
      give_back(id, call('HINCRBY', SIDE .. 'lapses:' .. queue, id, 1), consumer)
    end
    count = count + #ids
    if count >= limit then
      break
    end
    end_lease(queue, consumer)
  end
  return count
end

-- The id of the job that a publication has made already, if it is its producer's last; false otherwise.
local function published_as(publication)
  if publication == '' then
    return false
  end
  local producer, number = string.match(publication, '^(.*)%-(%d+)$')
  local last = call('GET', SIDE .. 'publisher:' .. producer)
  local known, id = string.match(last or '', '^(%d+) (.*)$')
  return known == number and id
end

-- Remembers what a publication has made.
local function remember(publication, id)
  if publication ~= '' then
    local producer, number = string.match(publication, '^(.*)%-(%d+)$')
    call('SET', SIDE .. 'publisher:' .. producer, number .. ' ' .. id, 'PX', REMEMBERED)
  end
end
