-- Stores a job as kickq's producers do, and wakes a worker.
--
-- KEYS, and ARGV[1] to ARGV[3]: see _common.lua
-- ARGV[4]   queue
-- ARGV[5]   its name as JSON
-- ARGV[6]   id, '' for the next number
-- ARGV[7]   that id as JSON
-- ARGV[8]   delay, ms; 0 for a job that may run at once
-- ARGV[9]   the members of the document from processTimeout to ghostInterval, as JSON
-- ARGV[10]   payload, as JSON
-- ARGV[11]   what Celery knows of the job; '' for nothing
-- ARGV[12]  publication, '' for none
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
  local known = published_as(ARGV[12])
  if known then
    return known
  end
  local keeps_sets = has_state_sets()
  local id, id_text = ARGV[6], ARGV[7]
  if id == '' then
    id = next_id()
    id_text = '"' .. id .. '"'
  elseif call('EXISTS', JOB .. id) == 1 then
    return id
  end
  local delay = tonumber(ARGV[8])
  local word, due = 'new', now + delay
  if delay > 0 then
    word = 'delayed'
  end
  local time = digits(now)
  local text = '{"id":' .. id_text .. ',"name":' .. ARGV[5] .. ',"complete":false,"success":false,"createTime":' .. time
    .. ',"updateTime":' .. time .. ',"finishTime":null,"totalProcessTime":null,"delay":' .. (delay > 0 and ARGV[8] or 'null')
    .. ',' .. ARGV[9] .. ',"data":' .. ARGV[10] .. ',"lastError":null,"scheduledFor":' .. (delay > 0 and digits(due) or 'null')
    .. ',"state":"' .. word .. '","runs":[],"hotjobPromise":null}'
  call('HSET', JOB .. id, 'id', id, 'name', ARGV[4], 'createTime', time, 'updateTime', time, 'state', word, 'itemData', text)
  if ARGV[11] ~= '' then
    call('HSET', JOB .. id, 'ferryman', ARGV[11])
  end
  if keeps_sets then
    call('SADD', STATE .. word, id)
  end
  call('ZADD', TIME_INDEX, time, id)
  if delay > 0 then
    call('ZADD', SCHEDULED, digits(due), id)
  else
    publish('create', ARGV[4], text)
    call('RPUSH', QUEUE .. ARGV[4], id)
    publish('queued', ARGV[4], text)
  end
  remember(ARGV[12], id)
  return id
end)
