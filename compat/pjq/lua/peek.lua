-- Reads the jobs of a queue that run next. Changes nothing.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]   queue
-- ARGV[3]   how many
-- Result    for each {id, fields and values of its hash}

local queue, room = ARGV[2], math.min(tonumber(ARGV[3]), MAX_PER_CALL)

return reply_of(function()
  local ids = room > 0 and call('LRANGE', queued(queue), -room, -1) or {}
  local found = {}
  for i = #ids, 1, -1 do
    append(found, {ids[i], attempt('HGETALL', record_of(ids[i])) or {}})
  end
  return found
end)
