-- Lists a failed job under its group, the newest failure at the head, in whatever order jobs are written. Safe to repeat.
-- The time of each listed failure is read from the job's record, a few of them for each job that is added.
-- KEYS[1]  P:f:<group>
-- KEYS[2]  P:failures
-- ARGV[1]  jid
-- ARGV[2]  when it failed, seconds
-- ARGV[3]  group
-- ARGV[4]  P:j:, what the records of jobs start with
local jid, when = ARGV[1], tonumber(ARGV[2])
redis.call('LREM', KEYS[1], 0, jid)

local function failed_at(other)
  local sound, failure = pcall(cjson.decode, redis.call('HGET', ARGV[4] .. other, 'failure') or '')
  return sound and type(failure) == 'table' and tonumber(failure.when) or 0
end

-- Of those that failed in the same second, the one with the larger id counts as the newer one.
local low, high = 0, redis.call('LLEN', KEYS[1])
while low < high do
  local middle = math.floor((low + high) / 2)
  local other = redis.call('LINDEX', KEYS[1], middle)
  local then_ = failed_at(other)
  if then_ > when or (then_ == when and other > jid) then
    low = middle + 1
  else
    high = middle
  end
end
local next_one = redis.call('LINDEX', KEYS[1], low)
if next_one then
  redis.call('LINSERT', KEYS[1], 'BEFORE', next_one, jid)
else
  redis.call('RPUSH', KEYS[1], jid)
end
redis.call('SADD', KEYS[2], ARGV[3])
