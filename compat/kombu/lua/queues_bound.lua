-- The queues to which an exchange leads. Changes nothing.
--
-- KEYS, ARGV[1…6]   see _common.lua
-- ARGV[7]   exchange
-- ARGV[8]   routing key
-- Result    queues, sorted

return reply_of(function()
  return queues_of(ARGV[7], ARGV[8])
end)
