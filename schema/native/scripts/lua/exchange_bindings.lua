-- Lists the bindings of an exchange, and removes those that have expired: all at once, or of
-- very many MAX_PER_CALL a call.
--
-- KEYS[1]   exchange hash, see _exchange.lua
-- ARGV[1]   now
-- ARGV[2]   where to go on, as the last part said; '0' to begin
-- Result    {version, {binding…}, type or '', alternate exchange or '', the version before the expired ones were removed, where the
--           next part begins or '0'}
--
-- What stands in all parts is all that there is, if each begins with the version with which the last one ended. A binding may come
-- twice.

-- Some fields with their values, and where the next ones begin.
local function read(from)
  if from == '0' and call('HLEN', KEYS[1]) <= MAX_PER_CALL then
    return call('HGETALL', KEYS[1]), '0'
  end
  local found = call('HSCAN', KEYS[1], from, 'COUNT', MAX_PER_CALL)
  return found[2], found[1]
end

return reply_of(function()
  local now = clock()
  local fields, after = read(ARGV[2])
  local is_setting = {}
  for _, name in ipairs(SETTINGS) do
    is_setting[name] = true
  end
  local bindings, expired = {}, {}
  for i = 1, #fields, 2 do
    if not is_setting[fields[i]] then
      append((tonumber(fields[i + 1]) or math.huge) <= now and expired or bindings, fields[i])
    end
  end
  local before, settings = version_of(KEYS[1]), call('HMGET', KEYS[1], 'type', 'alternate', 'auto-delete')
  local version = before
  if #expired > 0 then
    in_slices('HDEL', KEYS[1], expired)
    version = new_version(KEYS[1], now)
    if settings[3] == '1' and bindings_of(KEYS[1]) == 0 then
      call('DEL', KEYS[1])
    end
  end
  return {version, bindings, settings[1] or '', settings[2] or '', before, after}
end)
