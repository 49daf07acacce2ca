-- Opens a slot for one writer of a partition. Writers of earlier runs, and earlier writers of the partition, are refused from then on.
--
-- KEYS[1]   the fence, in the slot: hash, its field run is the run that may write there
-- KEYS[2]   the partition's progress in the slot: hash, see partition_writer.py
-- ARGV[1]   the writer's run
-- ARGV[2]   the writer's token
-- ARGV[3]   '1': whoever comes first makes the fence; '0': without a fence nobody may write
-- Result    {count, digest or nil, count when this run first came}; nil for a writer that came too late

local fence, progress = KEYS[1], KEYS[2]
local mine, token = tonumber(ARGV[1]), tonumber(ARGV[2])

local run = tonumber(redis.call('HGET', fence, 'run') or nil)
if (run or mine) > mine or (not run and ARGV[3] == '0') then
  return false
end
if (tonumber(redis.call('HGET', progress, 'token') or nil) or token) > token then
  return false
end

if run ~= mine then
  redis.call('HSET', fence, 'run', ARGV[1])
end
redis.call('HSET', progress, 'token', ARGV[2])
redis.call('HSETNX', progress, 'count', 0)
local count = redis.call('HGET', progress, 'count')
if redis.call('HGET', progress, 'run') ~= ARGV[1] then
  redis.call('HSET', progress, 'run', ARGV[1], 'stood', count)
end
return redis.call('HMGET', progress, 'count', 'digest', 'stood')
