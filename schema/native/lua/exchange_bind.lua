-- Binds a queue to an exchange, or renews the expiry of a binding.
--
-- KEYS[1]   exchange hash: binding (JSON array [queue, routing key, pattern]) -> expiry ms or '', and `version`
-- ARGV[1]   now
-- ARGV[2]   binding
-- ARGV[3]   expiry ms, '' never
-- Result    the exchange's version after it

return answer(function()
  drain(KEYS[1])
  local known = call('HGET', KEYS[1], ARGV[2])
  call('HSET', KEYS[1], ARGV[2], ARGV[3])
  if not known then
    return new_version(KEYS[1], clock())
  end
  return version_of(KEYS[1])
end)
