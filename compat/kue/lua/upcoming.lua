-- The next delayed jobs of one type, the next one first. Changes nothing.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]  type
-- ARGV[3]  most jobs
-- ARGV[4]  bytes of payloads that the reply may have; one job comes at any rate
-- Result   {{when it is due, ms, and what described() says …} …}
--
-- One index has the delayed jobs of all types: MAX_PER_CALL of them are looked at, the next ones, or, where the index is by priority,
-- those of the type alone.

local queue, most, space = ARGV[2], math.min(tonumber(ARGV[3]), MAX_PER_CALL), tonumber(ARGV[4])

-- Pairs of a moment and the job's id, in order.
local function next_ones()
  local found, own = {}, by_type(queue, 'delayed')
  if era() < V0_9 then
    for _, member in ipairs(call('ZRANGE', own, 0, MAX_PER_CALL - 1)) do
      local id = id_of(member)
      local due = id and due_time(id)
      append(found, due and {due, id} or nil)
    end
    table.sort(found, function(one, other)
      return one[1] < other[1]
    end)
    return found
  end
  local entries = call('ZRANGE', by_state('delayed'), 0, MAX_PER_CALL - 1, 'WITHSCORES')
  for i = 1, #entries, 2 do
    local id = id_of(entries[i])
    if id and call('ZSCORE', own, entries[i]) then
      append(found, {tonumber(entries[i + 1]), id})
    end
  end
  return found
end

return reply_of(function()
  local jobs, used = {}, 0
  for _, pair in ipairs(next_ones()) do
    local job = #jobs < most and read(pair[2])
    if job and job.type == queue and (job.state or 'delayed') == 'delayed' and pair[1] < math.huge then
      local content = call('HMGET', job_key(job.id), 'data', 'ferryman')
      local data = content[1] or '{}'
      used = used + #data
      if #jobs > 0 and used > space then
        break
      end
      append(jobs, {number_text(math.ceil(pair[1])), unpack(described(job, data, content[2]))})
    end
  end
  return jobs
end)
