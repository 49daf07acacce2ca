-- Gives up a job that a consumer holds: it is kept in dead, with the reason.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   consumer
-- ARGV[3]   id
-- ARGV[4]   reason, one word
-- ARGV[5]   error, text
-- Result    1, or 0 if this consumer does not hold the job (any more)

local consumer, id = ARGV[2], ARGV[3]

return answer(function()
  local now = clock()
  open()
  drain()
  local place = call('ZSCORE', HELD .. consumer, id)
  if not place then
    return 0
  end
  bury(now, id, place, ARGV[4], ARGV[5])
  call('ZREM', HELD .. consumer, id)
  settle(now)
  return 1
end)
