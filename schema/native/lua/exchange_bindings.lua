-- Lists the bindings of an exchange, and removes those that have expired.
--
-- KEYS[1]   exchange hash, see exchange_bind.lua
-- ARGV[1]   now
-- Result    {version, {binding…}}

return answer(function()
  local now = clock()
  local all = call('HGETALL', KEYS[1])
  local bindings, expired = {}, {}
  for i = 1, #all, 2 do
    if all[i] ~= 'version' then
      if (tonumber(all[i + 1]) or math.huge) <= now then
        append(expired, all[i])
      else
        append(bindings, all[i])
      end
    end
  end
  local version
  if #expired > 0 then
    in_slices('HDEL', KEYS[1], expired)
    version = new_version(KEYS[1], now)
  else
    version = version_of(KEYS[1])
  end
  return {version, bindings}
end)
