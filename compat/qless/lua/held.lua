-- The jobs that a worker runs in a queue. Changes nothing.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]  queue
-- ARGV[4]  worker
-- Result   their ids

return reply_of(function()
  return running_jobs(ARGV[3], ARGV[4], MAX_PER_CALL)
end)
