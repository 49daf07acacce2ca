-- Sets options of qless, or takes one back to its default.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]  option
-- ARGV[4]  value; none: its default
-- Result   1

local option, value = ARGV[3], ARGV[4]

return reply_of(function()
  if value then
    publish('log', {event = 'config_set', option = option, value = value})
    call('HSET', QL .. 'config', option, value)
  else
    publish('log', {event = 'config_unset', option = option})
    call('HDEL', QL .. 'config', option)
  end
  return 1
end)
