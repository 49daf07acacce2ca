-- Cancels what waits in a queue or is scheduled there, a chunk at a time. Jobs for which others wait stay.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]  queue
-- ARGV[4]  most jobs to cancel
-- Result   {cancelled, 1 if there may be more}

local queue, limit = ARGV[3], math.min(tonumber(ARGV[4]), MAX_PER_CALL)

return reply_of(function()
  local now = seconds()
  first_write()
  local cancelled, seen = 0, 0
  for _, index in ipairs({'work', 'scheduled'}) do
    for _, id in ipairs(seen < limit and call('ZRANGE', zset(queue, index), 0, limit - seen - 1) or {}) do
      seen = seen + 1
      if call('EXISTS', RECORD .. id .. '-dependents') == 0 then
        if fields_of(id, 'state') then
          cancel(now, id)
        end
        call('ZREM', zset(queue, index), id)
        cancelled = cancelled + 1
      end
    end
  end
  return {cancelled, (seen == limit and cancelled > 0) and 1 or 0}
end)
