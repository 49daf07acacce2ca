-- Tells a job that has yet to end who waits for it, so that its end releases them. Safe to repeat.
-- KEYS[1]  P:h:jobs:<the job>
-- KEYS[2]  P:s:dependencies:<the one that waits>
-- ARGV[1]  the job
-- ARGV[2]  the one that waits
local status = redis.call('HGET', KEYS[1], 'status')
local unfinished = status == 'new' or status == 'queued' or status == 'running' or status == 'retried'
if not unfinished or redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 0 then
  return
end
local told, dependants = pcall(cjson.decode, redis.call('HGET', KEYS[1], 'dependants') or '{}')
if not told or type(dependants) ~= 'table' then
  dependants = {}
end
for _, dependant in ipairs(dependants) do
  if dependant == ARGV[2] then
    return
  end
end
table.insert(dependants, ARGV[2])
redis.call('HSET', KEYS[1], 'dependants', cjson.encode(dependants))
