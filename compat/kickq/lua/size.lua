-- How many jobs of a queue are where. Changes nothing.
--
-- KEYS, and ARGV[1] to ARGV[3]: see _common.lua
-- ARGV[4]   queue
-- Result    {1, waiting, of these due, scheduled, held, blocked, dead, done, consumers, next due ms or -1, now}
--
-- `held` are those of our consumers: kickq's own leave no trace by queue. One zset has what is scheduled of all queues: of that, the
-- first MAX_PER_CALL are looked at.

local queue = ARGV[4]

return reply_of(function()
  local now = clock()
  local entries = call('ZRANGE', SCHEDULED, 0, MAX_PER_CALL - 1, 'WITHSCORES')
  local due, scheduled, next_due = 0, 0, -1
  for i = 1, #entries, 2 do
    if attempt('HGET', JOB .. entries[i], 'name') == queue then
      local time = tonumber(entries[i + 1])
      next_due = next_due < 0 and math.max(0, math.ceil(time)) or next_due
      if time <= now then
        due = due + 1
      else
        scheduled = scheduled + 1
      end
    end
  end
  local consumers = call('ZCOUNT', SIDE .. 'consumers:' .. queue, '(' .. digits(now), '+inf')
  local waiting, held = call('LLEN', QUEUE .. queue) + due, call('HLEN', SIDE .. 'held:' .. queue)
  return {1, waiting, due, scheduled, held, 0, 0, 0, consumers, next_due, now}
end)
