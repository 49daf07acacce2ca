-- Changes the version of a queue's routes, so that publishers whose cached routes still lead here are refused.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- Result    the new version; 0 if there is no such queue

return reply_of(function()
  open_queue()
  first_write()
  if not queue.schema then
    return 0
  end
  return call('HINCRBY', META, 'routes', 1)
end)
