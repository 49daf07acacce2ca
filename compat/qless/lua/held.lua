-- The jobs that a worker runs in a queue. Changes nothing.
--
-- KEYS[1]  root of the side keys
-- KEYS[2]  what the keys of qless begin with
-- ARGV[1]  now
-- ARGV[2]  core
-- ARGV[3]  queue
-- ARGV[4]  worker
-- Result   their ids

return reply_of(function()
  return running_jobs(ARGV[3], ARGV[4], MAX_PER_CALL)
end)
