-- Sets options of qless, or takes one back to its default.
--
-- KEYS[1]  root of the side keys
-- KEYS[2]  what the keys of qless begin with
-- ARGV[1]  now
-- ARGV[2]  core
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
