-- Unbinds queues from a fanout exchange.
--
-- KEYS      the exchange's, see _fanout.lua
-- ARGV[1]   now
-- ARGV[2…]  queues; none stands for all: the exchange is deleted
-- Result    how many of them were bound

return reply_of(function()
  local unbound
  if #ARGV == 1 then
    unbound = call('HLEN', CURSORS)
    call('DEL', CURSORS)
  else
    unbound = call('HDEL', CURSORS, unpack(ARGV, 2))
  end
  local now = clock()
  local bound, last = sweep(now)
  if bound > 0 then
    live_until(STREAM, now, last)
    live_until(CURSORS, now, last)
  end
  return unbound
end)
