-- The version of an exchange's bindings.
--
-- KEYS[1]   exchange hash, see exchange_bind.lua
-- ARGV[1]   now
-- Result    the version, 0 for an exchange without any

return answer(function()
  return version_of(KEYS[1])
end)
