-- Arrivals: what scripts that bring jobs to a queue begin with, after _queue.lua.

local function is_remembered(memory, number)
  for first, last in string.gmatch(memory, '(%d+)%-(%d+)') do
    if number >= tonumber(first) and number <= tonumber(last) then
      return true
    end
  end
  return false
end

-- Idle consumers wait until the next event they know: they must hear of one that comes before it.
local function schedule(jobs)
  local next_due = lowest_score(SCHEDULED)
  in_slices('ZADD', SCHEDULED, jobs)
  if lowest_score(SCHEDULED) < next_due then
    wake()
  end
end

-- How many jobs, and how many bytes, are more than the queue may have waiting.
local function excess()
  local jobs = queue.max_length and call('ZCARD', WAITING) - queue.max_length or 0
  local bytes = queue.max_bytes and (call('HGET', META, 'bytes') or 0) - queue.max_bytes or 0
  return jobs, bytes
end

-- How many jobs more, and how many bytes of their bodies, a queue may have that refuses what is beyond its greatest length.
local function room()
  local jobs, bytes = excess()
  return queue.max_length and -jobs - call('ZCARD', SCHEDULED) or math.huge, queue.max_bytes and -bytes or math.huge
end

local function is_full(number, bytes_to_come)
  local jobs, bytes = room()
  return number > jobs or bytes_to_come > bytes
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
  if queue.died then
    trim_dead(now)
  end
end

-- Whether a dead job may wait again. A queue that refuses what is beyond its greatest length refuses this one too.
local function has_room_for(id)
  return queue.overflow ~= 'reject-publish' or not is_full(1, queue.max_bytes and bytes_of({id}) or 0)
end

-- After dead jobs were put back: the first jobs make room for them, as for new ones.
local function make_room_for(now, number)
  if number > 0 and (queue.max_length or queue.max_bytes) then
    drop_head(now, number + MAX_PER_CALL)
  end
end

-- The value of a field among the words of a hash.
local function field(hash, name)
  for i = 1, #hash, 2 do
    if hash[i] == name then
      return hash[i + 1]
    end
  end
end

local function hold_unique(job)
  if field(job.hash, 'unique') then
    if not queue.unique then
      set_meta('unique', '1')
    end
    hold_unique_again(job.id)
  end
end

-- Stores jobs that come from another queue, in their order. Each has an id, a priority, the words of its hash, and `due`, ms, if it is
-- to be scheduled.
local function store(jobs)
  local sequence = call('HINCRBY', META, 'sequence', #jobs) - #jobs
  local waiting, scheduled, ids, waiting_ids = {}, {}, {}, {}
  for n, job in ipairs(jobs) do
    job.score = rank(job.priority) * RANK_STEP + sequence + n
    append(ids, job.id)
    if job.due then
      append(scheduled, job.due, job.id)
    else
      append(waiting, job.score, job.id)
      append(waiting_ids, job.id)
    end
  end
  if #scheduled > 0 then
    schedule(scheduled)
  end
  in_slices('ZADD', WAITING, waiting)
  for _, job in ipairs(jobs) do
    if job.due then
      call('HSET', JOB .. job.id, 'score', job.score, unpack(job.hash))
    else
      call('HSET', JOB .. job.id, unpack(job.hash))
    end
    hold_unique(job)
  end
  account(waiting_ids, 1)
  renew_arrivals(ids)
  count('published', #jobs)
end
