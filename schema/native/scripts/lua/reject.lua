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

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  sample(now)
  local score = call('ZSCORE', HELD .. consumer, id)
  if not score then
    return 0
  end
  observe(RUNS, {run_time(now, id)})
  dead_letter(now, id, score, ARGV[4], ARGV[5])
  call('ZREM', HELD .. consumer, id)
  trim_dead(now)
  finish(now)
  return 1
end)
