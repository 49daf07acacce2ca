-- Stores the hash of one job, in place of an older version of it. Safe to repeat. A job's key is its bare id, so what stands
-- there may be somebody else's: that is left alone, and an error.
-- KEYS[1]  the job's key
-- ARGV     field, value, field, value …
local SLICE = 1000

local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'hash' and redis.call('HEXISTS', KEYS[1], 'json') + redis.call('HEXISTS', KEYS[1], 'dispatched_at') > 0 then
  redis.call('DEL', KEYS[1])
elseif kind ~= 'none' then
  return redis.error_reply('ERR the key ' .. KEYS[1] .. ' is a ' .. kind .. ' of somebody else, and the id of a job: rename or remove it')
end
for first = 1, #ARGV, SLICE do
  redis.call('HSET', KEYS[1], unpack(ARGV, first, math.min(first + SLICE - 1, #ARGV)))
end
return redis.status_reply('OK')
