-- Ends a pause (pause.lua), and wakes a consumer where jobs wait. Refused where there is no such queue.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- Result    1, or 0 if it was not paused

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  if not queue.schema then
    refuse('refused', 'there is no such queue')
  end
  local paused = queue.paused
  set_meta('paused', nil)
  finish(now)
  return paused and 1 or 0
end)
