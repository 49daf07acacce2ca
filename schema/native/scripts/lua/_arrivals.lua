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

-- Whether so many jobs more, with so many bytes of bodies, are more than the queue may have.
local function is_full(number, bytes_to_come)
  local jobs, bytes = excess()
  return bytes + bytes_to_come > 0 or (queue.max_length and jobs + call('ZCARD', SCHEDULED) + number > 0)
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
