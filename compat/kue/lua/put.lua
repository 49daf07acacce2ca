-- Stores a job as kue's producers do, and wakes a worker.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]  type
-- ARGV[3]  publication, '' for none
-- ARGV[4]  priority
-- ARGV[5]  delay, ms; 0 for none
-- ARGV[6]  max_attempts; '' for kue's default
-- ARGV[7]  data, JSON
-- ARGV[8]  the field ferryman, '' for none
-- ARGV[9]  the version whose form it gets if no other job tells, as in _common.lua; '' the newest
-- ARGV[10…] more fields and their values: ttl, removeOnComplete, backoff
-- Result   the job's id

local queue, publication, priority, delay, attempts = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]

-- A number that no job has yet: the counter may have been set back.
local function new_id()
  for _ = 1, MAX_PER_CALL do
    local id = number_text(call('INCR', P .. 'ids'))
    if call('EXISTS', job_key(id)) == 0 then
      return id
    end
  end
  refuse('damaged', P .. 'ids', 'it is far below the ids of the jobs')
end

return reply_of(function()
  local known = published_as(publication)
  if known then
    return known
  end
  local now = clock()
  if ARGV[9] ~= '' and call('EXISTS', P .. 'jobs') == 0 then
    KNOWN.era = tonumber(ARGV[9])
  end
  local version = era() -- before this job can tell
  local id = new_id()
  local key, member = job_key(id), member_of(id)
  call('SADD', P .. 'job:types', queue)
  call('HSET', key, 'type', queue, 'created_at', now, 'priority', priority, 'data', ARGV[7])
  if attempts ~= '' or version >= V0_8 then
    call('HSET', key, 'max_attempts', attempts == '' and '1' or attempts)
  end
  local due = now + math.floor(delay)
  if version >= V0_9 then
    call('HSET', key, 'promote_at', due)
  end
  if delay > 0 then
    call('HSET', key, 'delay', ARGV[5])
  end
  if ARGV[8] ~= '' then
    call('HSET', key, 'ferryman', ARGV[8])
  end
  for i = 10, #ARGV, 2 do
    call('HSET', key, ARGV[i], ARGV[i + 1])
  end
  call('ZADD', P .. 'jobs', priority, member)
  local job = {id = id, type = queue, priority = priority}
  if delay > 0 then
    enter(job, 'delayed', now, version >= V0_9 and due)
  else
    enter(job, 'inactive', now)
  end
  remember(publication, id)
  return id
end)
