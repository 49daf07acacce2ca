-- What every script about one exchange begins with, after _common.lua.
--
-- Producers cache routes and compare the exchange's version, so a version must never come twice, not even when the exchange has
-- been deleted and declared again: each is the time in ms, or one more than the last if that is higher.

local function version_of(key)
  return tonumber(call('HGET', key, 'version') or nil) or 0
end

local function new_version(key, now)
  local version = math.max(version_of(key) + 1, now)
  call('HSET', key, 'version', version)
  return version
end

-- A first write that needs no memory and changes nothing: no binding has an empty name (rule 2).
local function drain(key)
  call('HDEL', key, '')
end
