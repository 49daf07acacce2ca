-- Deletes an exchange with all its bindings.
--
-- KEYS[1]   exchange hash, see _exchange.lua
-- ARGV[1]   now
-- Result    how many bindings there were

return reply_of(function()
  local bindings = bindings_of(KEYS[1])
  call('DEL', KEYS[1])
  return bindings
end)
