-- Deletes an exchange with all its bindings.
--
-- KEYS[1]   exchange hash, see exchange_bind.lua
-- ARGV[1]   now
-- Result    how many bindings there were

return answer(function()
  local bindings = call('HLEN', KEYS[1]) - call('HEXISTS', KEYS[1], 'version')
  call('DEL', KEYS[1])
  return bindings
end)
