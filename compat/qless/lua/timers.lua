-- What is due, in all queues: warns workers whose lock has ended, gives up on jobs without attempts left, makes the jobs that recurring
-- ones are due for, promotes. qless does so when somebody pops or looks; here somebody does every second.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- Result   1 if there is more to do at once, 0 if not

-- How many queues one call looks at; where there are more, each call looks at the next ones, by the clock.
local MOST_QUEUES = 500

local function nobody()
  return false
end

return reply_of(function()
  local now = seconds()
  first_write()
  local left = MAX_PER_CALL
  local turns = math.ceil(call('ZCARD', QL .. 'queues') / MOST_QUEUES)
  local first = turns > 1 and math.floor(now) % turns * MOST_QUEUES or 0
  for _, queue in ipairs(call('ZRANGE', QL .. 'queues', first, first + MOST_QUEUES - 1)) do
    if left > 0 and call('SISMEMBER', QL .. 'paused_queues', queue) == 0 then
      lose_locks(now, queue, left, 0, nobody)
      -- Where no worker of ours would take them, recurring jobs must not pile up: one, as for an idle worker.
      local is_served = call('EXISTS', SIDE .. 'consumers:' .. queue) == 1
      local wanted = is_served and left or call('EXISTS', zset(queue, 'work')) == 0 and 1 or 0
      local done = spawn(now, queue, wanted)
      done = done + promote(now, queue, left - done)
      left = left - done
    end
  end
  for _, queue in ipairs(served_queues()) do
    for _, worker in ipairs(call('ZRANGEBYSCORE', SIDE .. 'consumers:' .. queue, '-inf', in_ms(now), 'LIMIT', 0, 100)) do
      end_lease(queue, worker)
      if call('EXISTS', jobs_of(worker)) == 0 then
        call('ZREM', QL .. 'workers', worker)
      end
    end
  end
  return left <= 0 and 1 or 0
end)
