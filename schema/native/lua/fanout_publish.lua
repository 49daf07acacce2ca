-- Broadcasts a message to every queue bound to a fanout exchange.
--
-- KEYS      the exchange's, see _fanout.lua
-- ARGV[1]   now
-- ARGV[2]   most messages that the stream keeps (about)
-- ARGV[3]   message
-- Result    the message's id in the stream; '' if no queue is bound, and nothing was stored

return answer(function()
  if sweep(clock()) == 0 then
    return ''
  end
  return call('XADD', STREAM, 'MAXLEN', '~', ARGV[2], '*', 'message', ARGV[3])
end)
