-- Notes that a worker has reported the end of dead tasks. They stay dead.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2…]  ids
-- Result    how many of them were to be reported

return reply_of(function()
  open_queue()
  first_write()
  local reported = 0
  for i = 2, #ARGV do
    reported = reported + call('ZREM', UNREPORTED, ARGV[i])
  end
  if queue.unreported and call('EXISTS', UNREPORTED) == 0 then
    set_meta('unreported', nil)
  end
  return reported
end)
