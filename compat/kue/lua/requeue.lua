-- Puts held jobs back to wait, their attempts as before.
--
-- KEYS[1]  root of the side keys
-- KEYS[2]  P
-- ARGV[1]  now
-- ARGV[2]  type
-- ARGV[3]  consumer
-- ARGV[4…] ids
-- Result   for each 1, or 0 if it was not this consumer's any more

local queue, consumer = ARGV[2], ARGV[3]

return reply_of(function()
  local now = clock()
  first_write()
  local flags = {}
  for i = 4, #ARGV do
    local job = held_job(queue, consumer, ARGV[i], now)
    if job then
      give_back(job, now)
      let_go(queue, job.id)
    end
    append(flags, job and 1 or 0)
  end
  return flags
end)
