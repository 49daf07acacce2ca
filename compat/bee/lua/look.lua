-- A bounded look at a keyspace: what kind of keys it has, and who has written its records. Writes nothing, but tries to delete a key
-- that there is not.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   pattern of all keys that begin so
-- ARGV[4]   how many keys to look at
-- Result    {'denied', why} where nothing can be written; else {bee's options or '', type of the key of its scripts, and for each key {name, type, options, 1 if it says failed_reason}}

local STEP, MOST_STEPS = 1000, 20

return reply_of(function()
  local tried = redis.pcall('DEL', SIDE .. 'none')
  if type(tried) == 'table' then
    return {'denied', tried.err}
  end
  local reply = {attempt('GET', BEE .. 'str:hive:options') or '', call('TYPE', BEE .. 'scripts').ok}
  local cursor, left = '0', tonumber(ARGV[4])
  for _ = 1, MOST_STEPS do
    local page = call('SCAN', cursor, 'MATCH', ARGV[3], 'COUNT', STEP)
    cursor = page[1]
    for _, key in ipairs(page[2]) do
      if left > 0 then
        left = left - 1
        local found = attempt('HMGET', key, 'options', 'failed_reason') or {}
        append(reply, {key, call('TYPE', key).ok, found[1] or '', found[2] and 1 or 0})
      end
    end
    if cursor == '0' or left == 0 then
      break
    end
  end
  return reply
end)
