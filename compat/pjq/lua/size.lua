-- Counts a queue's jobs. Changes nothing.
--
-- KEYS[1]   root of the side keys
-- KEYS[2]   what pjq's keys begin with
-- ARGV[1]   now
-- ARGV[2]   queue
-- Result    {waiting, delayed, dispatched or processing, finished, consumers of ours, when the first lease of ours ends or -1, now};
--           ms

local queue = ARGV[2]

return reply_of(function()
  local ours = call('ZCARD', leases(queue))
  local delayed = math.max(0, ours - call('HLEN', SIDE .. 'held:' .. queue))
  local first = delayed > 0 and call('ZRANGE', leases(queue), 0, 0, 'WITHSCORES')[2]
  return {
    call('LLEN', queued(queue)),
    delayed,
    math.max(0, call('ZCARD', dispatched(queue)) - delayed) + call('ZCARD', processing(queue)),
    call('ZCARD', finished(queue)),
    call('ZCARD', SIDE .. 'consumers:' .. queue),
    first and math.ceil(tonumber(first) * 1000) + LEASE or -1,
    milliseconds(moment()),
  }
end)
