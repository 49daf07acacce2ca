-- Adds jobs to those that a job waits for, or takes some or all of them away. Only where it waits for some.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   id
-- ARGV[4]   'on'; 'off'; 'none': away with all
-- ARGV[5…]  ids of the others
-- Result    1; 0 if it waits for none

local id, change = ARGV[3], ARGV[4]

return reply_of(function()
  local now = seconds()
  first_write()
  if fields_of(id, 'state') ~= 'depends' then
    return 0
  end
  local mine = RECORD .. id .. '-dependencies'
  local others = {unpack(ARGV, 5)}
  if change == 'on' then
    wait_for(id, open_ones(others))
    return 1
  end
  if change == 'none' then
    others = call('SMEMBERS', mine)
  end
  for _, other in ipairs(others) do
    call('SREM', RECORD .. other .. '-dependents', id)
    call('SREM', mine, other)
  end
  if call('SCARD', mine) == 0 then
    stop_waiting(now, id, false)
  end
  return 1
end)
