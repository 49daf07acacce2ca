-- Puts jobs back that a consumer holds, their attempts as before.
--
-- KEYS[1]  root of the side keys
-- KEYS[2]  P
-- ARGV[1]  now
-- ARGV[2]  type
-- ARGV[3]  consumer
-- ARGV[4]  at most how many
-- ARGV[5]  '1' if the consumer has gone once that is all
-- Result   how many it held of those that were looked at

local queue, consumer, limit = ARGV[2], ARGV[3], tonumber(ARGV[4])

return reply_of(function()
  local now = clock()
  first_write()
  local ids = held_by(queue, consumer, limit)
  for _, id in ipairs(ids) do
    local job = held_job(queue, consumer, id, now)
    if job then
      give_back(job, now)
      let_go(queue, id)
    end
  end
  if ARGV[5] == '1' and #ids < limit then
    end_lease(queue, consumer)
    forget_lapses(queue)
    if #served_queues() == 0 then
      call('DEL', SIDE .. 'unlisted') -- timers.lua has begun it; nobody goes on with it
    end
  end
  return #ids
end)
