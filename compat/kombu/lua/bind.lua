-- Binds a queue to an exchange, or takes a binding away.
--
-- KEYS, ARGV[1…6]   see _common.lua
-- ARGV[7]   exchange
-- ARGV[8]   the member of its binding table
-- ARGV[9]   'bind' or 'unbind'
-- ARGV[10]  how long the table is to live, ms from now, '' for a queue that lasts
-- Result    1

local exchange, member = ARGV[7], ARGV[8]
local names, permanent = PREFIX .. '_kombu.binding.' .. exchange, PREFIX .. '_kombu.binding_permanent.' .. exchange

return reply_of(function()
  if ARGV[9] == 'unbind' then
    call('SREM', names, member)
    call('SREM', permanent, member)
  else
    call('SADD', names, member)
    if ARGV[10] == '' then
      call('SADD', permanent, member)
    else
      call('ZADD', PREFIX .. '_kombu.binding_deadlines', 'GT', string.format('%.0f', clock() + ARGV[10]), exchange)
    end
  end
  return 1
end)
