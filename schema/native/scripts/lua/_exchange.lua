-- What every script about one exchange begins with, after _common.lua.
--
-- KEYS[1] exchange hash: binding (JSON array [queue, routing key, pattern]) -> expiry ms or ''; and the fields of SETTINGS
--
-- Producers cache routes and compare the exchange's version, so a version must never come twice, not even when the exchange has
-- been deleted and declared again: each is the time in ms, or one more than the last if that is higher.

-- version; type (direct, topic …); alternate: the exchange for what no queue here wants; auto-delete: it goes with its last binding
local SETTINGS = {'version', 'type', 'alternate', 'auto-delete'}

-- How many bindings an exchange has.
local function bindings_of(key)
  local number = call('HLEN', key)
  for _, name in ipairs(SETTINGS) do
    number = number - call('HEXISTS', key, name)
  end
  return number
end

local function version_of(key)
  return tonumber(call('HGET', key, 'version') or nil) or 0
end

local function new_version(key, now)
  local version = math.max(version_of(key) + 1, now)
  call('HSET', key, 'version', version)
  return version
end

-- A first write that needs no memory and changes nothing: no binding has an empty name (rule 2).
local function first_write(key)
  call('HDEL', key, '')
end
