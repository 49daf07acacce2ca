-- What the processes of kue do every second, for all types: promotes, fails what runs past its ttl. And what nobody but us does: gives
-- back what lapsed consumers held, forgets lapses of jobs that have ended, lists jobs again that a killed worker of kue had half taken.
--
-- KEYS[1]  root of the side keys; `unlisted` behind it: id -> since when a job waits that no worker can find, as first seen, and what
--          its record said then; and `next`, the rank at which to look for more
-- KEYS[2]  P
-- ARGV[1]  now
-- ARGV[2]  after how many lapses of its consumers a job fails, '' never
-- Result   1 if there is more to do at once

-- Jobs whose places one call looks at.
local LOOKED_AT = 200

-- More types than this are not counted, but looked through.
local MANY_TYPES = 1000

-- kue's workers take a job out of its type's index first, and say so in its record a moment later; one that is killed between leaves a
-- job that waits for ever. So long after it was first seen, ms, its worker is dead and not slow.
local HALF_TAKEN = 10000

local UNLISTED = SIDE .. 'unlisted'

-- What a job's record says as long as nobody touches it, if the job waits where no worker looks; nil for any other.
local function unlisted(id)
  local job = read(id)
  if job and job.state == 'inactive' and not call('ZSCORE', by_type(job.type, 'inactive'), member_of(id)) then
    return (call('HGET', job_key(id), 'updated_at') or '') .. ' ' .. (job.started_at or ''), job
  end
end

-- Whether there may be waiting jobs that stand in no type's index.
local function may_be_unlisted()
  local waiting = call('ZCARD', by_state('inactive'))
  if waiting == 0 or call('SCARD', P .. 'job:types') > MANY_TYPES then
    return waiting > 0
  end
  for _, queue in ipairs(call('SMEMBERS', P .. 'job:types')) do
    waiting = waiting - call('ZCARD', by_type(queue, 'inactive'))
  end
  return waiting > 0
end

local function relist(now)
  local seen = call('HGETALL', UNLISTED)
  for i = 1, #seen, 2 do
    local id = seen[i]
    local since, before = string.match(seen[i + 1], '^(%d+) (.*)$')
    if since then
      local says, job = unlisted(id)
      if says ~= before then
        call('HDEL', UNLISTED, id)
      elseif now - tonumber(since) >= HALF_TAKEN then
        call('ZADD', by_type(job.type, 'inactive'), priority_of(job), member_of(id))
        call('LPUSH', tokens_of(job.type), '1')
        publish(id, 'enqueue', ',' .. quoted(job.type))
        call('HDEL', UNLISTED, id)
      end
    end
  end
  if not may_be_unlisted() then
    call('HDEL', UNLISTED, 'next')
    return
  end
  local first = tonumber(call('HGET', UNLISTED, 'next') or 0)
  local members = call('ZRANGE', by_state('inactive'), first, first + LOOKED_AT - 1)
  for _, member in ipairs(members) do
    local id = id_of(member)
    local says = id and unlisted(id)
    if says then
      call('HSETNX', UNLISTED, id, number_text(now) .. ' ' .. says)
    end
  end
  call('HSET', UNLISTED, 'next', #members == LOOKED_AT and first + LOOKED_AT or 0)
  call('PEXPIRE', UNLISTED, 6 * HALF_TAKEN) -- it ends with the timers
end

return reply_of(function()
  local now = clock()
  first_write()
  local left = MAX_PER_CALL
  local promoted = promote(now, left)
  expire(now, left, true)
  relist(now)
  for _, queue in ipairs(served_queues()) do
    left = left - reclaim_lapsed(queue, now, left, tonumber(ARGV[2]) or math.huge)
    if left <= 0 then
      return 1
    end
    forget_lapses(queue)
  end
  return promoted == MAX_PER_CALL and 1 or 0
end)
