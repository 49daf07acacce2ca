-- Says what speaks against serving a keyspace. Changes nothing.
--
-- KEYS, and ARGV[1] to ARGV[3]: see _common.lua
-- ARGV[4]   a pattern of the keys under the namespace
-- Result    {word, detail …}: {'fine'}, {'type', key, its type, the right type}, {'strange', key}, {'locked', error}

-- Keys of the database that are looked at, at most, where none of kickq's own is found.
local MOST_LOOKS, LOOK = 10, 500

-- kue's, whose records have the names of kickq's.
local STRANGERS = {KEYS[2] .. 'ids', KEYS[2] .. 'job:types'}

-- Ids of which the records are looked at.
local SAMPLE = 20

local TYPES = {{COUNTER, 'string'}, {TIME_INDEX, 'zset'}, {SCHEDULED, 'zset'}, {PURGE, 'zset'}}
for _, word in ipairs(WORDS) do
  append(TYPES, {STATE .. word, 'set'})
end

local function type_of(key)
  return call('TYPE', key).ok
end

-- Whether a key is one that kickq has also where all its jobs are gone, or damaged.
local function is_own(key)
  if string.sub(key, 1, #JOB) == JOB then
    return type_of(key) == 'hash' and call('HEXISTS', key, 'itemData') == 1
  end
  return key == COUNTER or string.sub(key, 1, #QUEUE) == QUEUE and type_of(key) == 'list'
end

-- A key under the namespace that is none of kickq's, among the first that the server lists.
local function some_stranger()
  local cursor = '0'
  for _ = 1, MOST_LOOKS do
    local reply = call('SCAN', cursor, 'MATCH', ARGV[4], 'COUNT', LOOK)
    for _, key in ipairs(reply[2]) do
      if not is_own(key) then
        return key
      end
    end
    cursor = reply[1]
    if cursor == '0' then
      return nil
    end
  end
end

return reply_of(function()
  local probe = redis.pcall('SREM', SIDE .. 'queues', '')
  if type(probe) == 'table' and probe.err then
    return {'locked', probe.err}
  end
  local is_known = false
  for _, pair in ipairs(TYPES) do
    local found = type_of(pair[1])
    if found ~= 'none' and found ~= pair[2] then
      return {'type', pair[1], found, pair[2]}
    end
    is_known = is_known or found ~= 'none' and pair[1] ~= COUNTER
  end
  for _, id in ipairs(call('ZREVRANGE', TIME_INDEX, 0, SAMPLE - 1)) do
    local found = type_of(JOB .. id)
    if found ~= 'none' and found ~= 'hash' then
      return {'type', JOB .. id, found, 'hash'}
    end
  end
  for _, key in ipairs(STRANGERS) do
    if call('EXISTS', key) == 1 then
      return {'strange', key}
    end
  end
  local stranger = not is_known and some_stranger()
  return stranger and {'strange', stranger} or {'fine'}
end)
