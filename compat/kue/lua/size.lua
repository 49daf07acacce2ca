-- How many jobs of a type are where. Changes nothing.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]  type
-- Result   {1, waiting, of these due, scheduled, held, blocked, dead, done, consumers, next due ms or -1, now}
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
  local function count(state)
    return call('ZCARD', by_type(queue, state))
  end
  local consumers = call('ZCOUNT', SIDE .. 'consumers:' .. queue, '(' .. number_text(now), '+inf')
  return {
    1, count('inactive') + due, due, count('delayed') - due, count('active'), 0, count('failed'), count('complete'), consumers,
    number_text(first), number_text(now),
  }
end)
