-- Remembers in the queue's meta that it is bound to an exchange, so that whoever deletes the queue can unbind it.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   exchange
-- Result    1, or 0 if there is no such queue

return answer(function()
  local now = clock()
  open()
  if not queue.schema then
    return 0
  end
  drain()
  call('HSET', META, 'bound-to:' .. ARGV[2], 1)
  settle(now)
  return 1
end)
