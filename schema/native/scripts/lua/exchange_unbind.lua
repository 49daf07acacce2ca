-- Removes bindings of an exchange.
--
-- KEYS[1]   exchange hash, see exchange_bind.lua
-- ARGV[1]   now
-- ARGV[2…]  bindings
-- Result    {how many there were, the exchange's version after it}

return reply_of(function()
  local removed = call('HDEL', KEYS[1], unpack(ARGV, 2))
  if removed == 0 then
    return {0, version_of(KEYS[1])}
  end
  local version = new_version(KEYS[1], clock())
  if call('HEXISTS', KEYS[1], 'auto-delete') == 1 and bindings_of(KEYS[1]) == 0 then
    call('DEL', KEYS[1])
  end
  return {removed, version}
end)
