-- Pauses a queue: nothing is taken from it until resume.lua, whoever restarts meanwhile. Publishing goes on, and what is due or was
-- held by lapsed consumers comes to wait. Refused where there is no such queue.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- Result    1, or 0 if it was paused already

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  if not queue.schema then
    refuse('refused', 'there is no such queue')
  end
  if queue.paused then
    return 0
  end
  set_meta('paused', string.format('%.0f', now))
  call('DEL', WAKE)
  finish(now)
  return 1
end)
