-- Deletes messages that wait in a queue, those that would run last first.
--
-- KEYS, ARGV[1…6]   see _common.lua
-- ARGV[7]   queue
-- ARGV[8]   how many at most
-- Result    {how many, 1 if there are more}

local queue, limit = ARGV[7], math.min(tonumber(ARGV[8]), MAX_PER_CALL)

return reply_of(function()
  first_write()
  local steps, gone, left = steps_of(), 0, 0
  for i = #steps, 1, -1 do
    local key = bucket(queue, steps[i])
    local length = call('LLEN', key)
    local part = math.min(length, limit - gone)
    if part > 0 then
      call('LTRIM', key, part, -1)
    end
    gone, left = gone + part, left + length - part
  end
  return {gone, left > 0 and 1 or 0}
end)
