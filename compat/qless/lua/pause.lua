-- Pauses a queue: nothing is popped from it, by whichever client. Or lets it go on.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]  queue
-- ARGV[4]  1 to pause it, 0 to let it go on
-- Result   1 if that has changed anything

return reply_of(function()
  first_write()
  return call(ARGV[4] == '1' and 'SADD' or 'SREM', QL .. 'paused_queues', ARGV[3])
end)
