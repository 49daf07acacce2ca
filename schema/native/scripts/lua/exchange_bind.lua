-- Binds a queue to an exchange, or renews the expiry of a binding.
--
-- KEYS[1]   exchange hash, see _exchange.lua
-- ARGV[1]   now
-- ARGV[2]   binding
-- ARGV[3]   ms until the binding expires, '' never
-- Result    the exchange's version after it

return reply_of(function()
  local now = clock()
  first_write(KEYS[1])
  local known = call('HGET', KEYS[1], ARGV[2])
  call('HSET', KEYS[1], ARGV[2], expiry_at(now, ARGV[3]))
  if not known then
    return new_version(KEYS[1], now)
  end
  return version_of(KEYS[1])
end)
