-- Remembers in the queue's meta that it is bound to an exchange, so that whoever deletes the queue can unbind it.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   exchange
-- Result    1, or 0 if there is no such queue

return reply_of(function()
  local now = clock()
  open_queue()
  if not queue.schema then
    return 0
  end
  first_write()
  call('HSET', META, 'bound-to:' .. ARGV[2], 1)
  finish(now)
  return 1
end)
