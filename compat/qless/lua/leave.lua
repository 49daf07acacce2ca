-- Takes one job out of every place where its own record says that it stands, before it is written anew. Safe to repeat.
-- As in qless's own scripts, most keys follow from what the record says: none of this is for a cluster.
-- KEYS[1]  P:j:<jid>
-- ARGV[1]  P
-- ARGV[2]  jid
local prefix, jid = ARGV[1], ARGV[2]
local queue, worker, tags, failure, throttles =
  unpack(redis.call('HMGET', KEYS[1], 'queue', 'worker', 'tags', 'failure', 'throttles'))

local function decoded(text)
  local sound, value = pcall(cjson.decode, text or '')
  return sound and type(value) == 'table' and value or {}
end

if queue then
  for _, index in ipairs({'work', 'locks', 'scheduled', 'depends', 'throttled'}) do
    redis.call('ZREM', prefix .. ':q:' .. queue .. '-' .. index, jid)
  end
end
if worker then
  redis.call('ZREM', prefix .. ':w:' .. worker .. ':jobs', jid)
end
redis.call('ZREM', prefix .. ':completed', jid)
local group = decoded(failure).group
if type(group) == 'string' then
  local list = prefix .. ':f:' .. group
  redis.call('LREM', list, 0, jid)
  if redis.call('EXISTS', list) == 0 then
    redis.call('SREM', prefix .. ':failures', group)
  end
end
for _, tag in ipairs(decoded(tags)) do
  local name = type(tag) == 'table' and '' or tostring(tag)
  local key = prefix .. ':t:' .. name
  if redis.call('ZREM', key, jid) == 1 then
    local left = redis.call('ZCARD', key)
    if left > 0 then
      redis.call('ZADD', prefix .. ':tags', left, name)
    else
      redis.call('ZREM', prefix .. ':tags', name)
    end
  end
end
for _, throttle in ipairs(decoded(throttles)) do
  if type(throttle) == 'string' then
    redis.call('ZREM', prefix .. ':th:' .. throttle .. '-locks', jid)
    redis.call('ZREM', prefix .. ':th:' .. throttle .. '-pending', jid)
  end
end
local waits = KEYS[1] .. '-dependencies'
for _, other in ipairs(redis.call('SMEMBERS', waits)) do
  redis.call('SREM', prefix .. ':j:' .. other .. '-dependents', jid)
end
redis.call('DEL', KEYS[1], KEYS[1] .. '-history', waits)
