-- The statistics of a queue on one day. Changes nothing.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]  queue
-- ARGV[4]  a moment of the day, seconds
-- Result   {wait, run, counters}, each {field, value, …}

return reply_of(function()
  local queue, day = ARGV[3], day_of(tonumber(ARGV[4]))
  local found = {}
  for _, kind in ipairs({'wait', 'run', 'stats'}) do
    append(found, call('HGETALL', QL .. 's:' .. kind .. ':' .. day .. ':' .. queue))
  end
  return found
end)
