-- Lists the bindings of an exchange, and removes those that have expired.
--
-- KEYS[1]   exchange hash, see _exchange.lua
-- ARGV[1]   now
-- Result    {version, {binding…}, type or '', alternate exchange or ''}

return answer(function()
  local now = clock()
  local all = call('HGETALL', KEYS[1])
  local bindings, expired, settings = {}, {}, {}
  for _, name in ipairs(SETTINGS) do
    settings[name] = ''
  end
  for i = 1, #all, 2 do
    if settings[all[i]] then
      settings[all[i]] = all[i + 1]
    else
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
  if #expired > 0 and #bindings == 0 and settings['auto-delete'] == '1' then
    call('DEL', KEYS[1])
  end
  return {version, bindings, settings.type, settings.alternate}
end)
