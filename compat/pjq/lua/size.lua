-- Counts a queue's jobs. Changes nothing.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]   queue
-- Result    {1, waiting, of these due, scheduled, held, blocked, dead, done, consumers, when the first delayed retry is due, ms, or -1, now}

local queue = ARGV[2]

return reply_of(function()
  local ours = call('ZCARD', leases(queue))
  local delayed = math.max(0, ours - call('HLEN', SIDE .. 'held:' .. queue))
  local first = delayed > 0 and call('ZRANGE', leases(queue), 0, 0, 'WITHSCORES')[2]
  local running = math.max(0, call('ZCARD', dispatched(queue)) - delayed) + call('ZCARD', processing(queue))
  local consumers, next_due = call('ZCARD', SIDE .. 'consumers:' .. queue), first and math.ceil(tonumber(first) * 1000) + LEASE or -1
  return {
    1, call('LLEN', queued(queue)), 0, delayed, running, 0, 0, call('ZCARD', finished(queue)), consumers, next_due,
    milliseconds(moment()),
  }
end)
