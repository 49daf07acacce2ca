-- Counts messages that no queue wanted, by exchange.
--
-- KEYS[1]   hash: exchange -> number; '' for all others once there are MOST
-- ARGV[1]   now
-- ARGV[2]   exchange
-- ARGV[3]   how many messages
-- Result    the number after it

local MOST = 1000

return reply_of(function()
  local known = call('HEXISTS', KEYS[1], ARGV[2]) == 1 or call('HLEN', KEYS[1]) < MOST
  return call('HINCRBY', KEYS[1], known and ARGV[2] or '', ARGV[3])
end)
