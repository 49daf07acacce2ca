-- How many jobs of a type are where. Changes nothing.
--
-- KEYS[1]  root of the side keys
-- KEYS[2]  P
-- ARGV[1]  now
-- ARGV[2]  type
-- Result   {now, inactive, of the delayed: due, delayed, active, complete, failed, consumers, when the first delayed one is due or -1}
--
-- Due jobs, and the next one, are looked for among so many of the first delayed jobs of all types.

local LOOKED_AT = 1000
local queue = ARGV[2]

local function delayed_ones(now)
  local index, due, first = by_type(queue, 'delayed'), 0, -1
  if era() < V0_9 or call('EXISTS', index) == 0 then
    return due, first
  end
  local found = call('ZRANGE', by_state('delayed'), 0, LOOKED_AT - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    local score = tonumber(found[i + 1])
    if score > now and first >= 0 then
      break
    end
    if call('ZSCORE', index, found[i]) then
      due = due + (score <= now and 1 or 0)
      first = first < 0 and math.ceil(score) or first
    end
  end
  return due, first
end

return reply_of(function()
  local now = clock()
  local due, first = delayed_ones(now)
  local reply = {number_text(now), call('ZCARD', by_type(queue, 'inactive')), due}
  for _, state in ipairs({'delayed', 'active', 'complete', 'failed'}) do
    append(reply, call('ZCARD', by_type(queue, state)))
  end
  append(reply, call('ZCOUNT', SIDE .. 'consumers:' .. queue, '(' .. number_text(now), '+inf'))
  append(reply, number_text(first))
  return reply
end)
