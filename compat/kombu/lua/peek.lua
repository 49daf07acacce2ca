-- The messages of a queue that run next. Changes nothing.
--
-- KEYS, ARGV[1…6]   see _common.lua
-- ARGV[7]   queue
-- ARGV[8]   how many
-- Result    messages

local queue, limit = ARGV[7], math.min(tonumber(ARGV[8]), MAX_PER_CALL)

return reply_of(function()
  local found = {}
  for _, step in ipairs(steps_of()) do
    local texts = #found < limit and call('LRANGE', bucket(queue, step), #found - limit, -1) or {}
    for i = #texts, 1, -1 do
      append(found, texts[i])
    end
  end
  return found
end)
