-- Unbinds queues from a fanout exchange.
--
-- KEYS      the exchange's, see _fanout.lua
-- ARGV[1]   now
-- ARGV[2…]  queues; none stands for all: the exchange is deleted
-- Result    how many of them were bound

return answer(function()
  local unbound
  if #ARGV == 1 then
    unbound = call('HLEN', CURSORS)
    call('DEL', CURSORS)
  else
    unbound = call('HDEL', CURSORS, unpack(ARGV, 2))
  end
  sweep(clock())
  return unbound
end)
