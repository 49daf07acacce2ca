-- What stands under the prefix: enough to tell whether it is kombu's. Changes nothing.
--
-- KEYS, ARGV[1…6]   see _common.lua
-- ARGV[7]   a pattern that fits what begins with the prefix
-- Result    {type of unacked, type of unacked_index, {key, type …} of some keys}

-- Keys that are looked at, and told.
local LOOKED, TOLD = 2000, 100

return reply_of(function()
  local told = {}
  for _, key in ipairs(call('SCAN', '0', 'MATCH', ARGV[7], 'COUNT', LOOKED)[2]) do
    if #told < 2 * TOLD then
      append(told, key, call('TYPE', key).ok)
    end
  end
  return {call('TYPE', UNACKED).ok, call('TYPE', INDEX).ok, told}
end)
