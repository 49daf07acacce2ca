-- Stores a job as kickq's producers do, and wakes a worker.
--
-- KEYS      see _common.lua
-- ARGV[1]   now
-- ARGV[2]   queue
-- ARGV[3]   its name as JSON
-- ARGV[4]   id, '' for the next number
-- ARGV[5]   that id as JSON
-- ARGV[6]   delay, ms; 0 for a job that may run at once
-- ARGV[7]   the members of the document from processTimeout to ghostInterval, as JSON
-- ARGV[8]   payload, as JSON
-- ARGV[9]   what Celery knows of the job; '' for nothing
-- ARGV[10]  publication, '' for none
-- Result    id; that of the first job where the publication is its producer's last, or where there is a job of this id already

-- Numbers that are in use though the counter was never there: so many are passed over in one call.
local MOST_TAKEN = 1000

-- The next id. A counter that was lost or set back would give out numbers of jobs that there are.
local function next_id()
  for _ = 1, MOST_TAKEN do
    local id = digits(call('INCR', COUNTER))
    if call('EXISTS', JOB .. id) == 0 then
      return id
    end
  end
  refuse('damaged', COUNTER, 'it stands far below the ids in use')
end

return reply_of(function()
  local now = clock()
  local known = published_as(ARGV[10])
  if known then
    return known
  end
  local keeps_sets = has_state_sets()
  local id, id_text = ARGV[4], ARGV[5]
  if id == '' then
    id = next_id()
    id_text = '"' .. id .. '"'
  elseif call('EXISTS', JOB .. id) == 1 then
    return id
  end
  local delay = tonumber(ARGV[6])
  local word, due = 'new', now + delay
  if delay > 0 then
    word = 'delayed'
  end
  local time = digits(now)
  local text = '{"id":' .. id_text .. ',"name":' .. ARGV[3] .. ',"complete":false,"success":false,"createTime":' .. time
    .. ',"updateTime":' .. time .. ',"finishTime":null,"totalProcessTime":null,"delay":' .. (delay > 0 and ARGV[6] or 'null')
    .. ',' .. ARGV[7] .. ',"data":' .. ARGV[8] .. ',"lastError":null,"scheduledFor":' .. (delay > 0 and digits(due) or 'null')
    .. ',"state":"' .. word .. '","runs":[],"hotjobPromise":null}'
  call('HSET', JOB .. id, 'id', id, 'name', ARGV[2], 'createTime', time, 'updateTime', time, 'state', word, 'itemData', text)
  if ARGV[9] ~= '' then
    call('HSET', JOB .. id, 'ferryman', ARGV[9])
  end
  if keeps_sets then
    call('SADD', STATE .. word, id)
  end
  call('ZADD', TIME_INDEX, time, id)
  if delay > 0 then
    call('ZADD', SCHEDULED, digits(due), id)
  else
    publish('create', ARGV[2], text)
    call('RPUSH', QUEUE .. ARGV[2], id)
    publish('queued', ARGV[2], text)
  end
  remember(ARGV[10], id)
  return id
end)
