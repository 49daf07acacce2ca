-- What the processes of kue do every second, for all types: promotes, fails what runs past its ttl. And what nobody but us does: gives
-- back what lapsed consumers held, forgets lapses of jobs that have ended.
--
-- KEYS[1]  root of the side keys
-- KEYS[2]  P
-- ARGV[1]  now
-- ARGV[2]  after how many lapses of its consumers a job fails, '' never
-- Result   1 if there is more to do at once

-- Jobs whose lapses one call looks at.
local LOOKED_AT = 100

local function forget_lapses(queue)
  local key = SIDE .. 'lapses:' .. queue
  for _, id in ipairs(call('HRANDFIELD', key, LOOKED_AT)) do
    local state = attempt('HGET', job_key(id), 'state')
    if not state or state == 'complete' or state == 'failed' then
      let_go(queue, id, true)
    end
  end
end

return reply_of(function()
  local now = clock()
  first_write()
  local left = MAX_PER_CALL
  local promoted = promote(now, left)
  expire(now, left, true)
  for _, queue in ipairs(served_queues()) do
    left = left - reclaim_lapsed(queue, now, left, tonumber(ARGV[2]) or math.huge)
    if left <= 0 then
      return 1
    end
    forget_lapses(queue)
  end
  return promoted == MAX_PER_CALL and 1 or 0
end)
