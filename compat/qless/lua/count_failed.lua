-- Raises the numbers of failures and failed jobs of one queue and day over those that were written: qless subtracts from
-- them when it cancels a failed job, and raises where there is nothing to subtract from. Safe to repeat; never lowers.
-- KEYS[1]  P:s:stats:<day>:<queue>
-- ARGV[1]  failed jobs written
for _, name in ipairs({'failures', 'failed'}) do
  local known = tonumber(redis.call('HGET', KEYS[1], name) or 0) or 0
  if known < tonumber(ARGV[1]) then
    redis.call('HSET', KEYS[1], name, ARGV[1])
  end
end
