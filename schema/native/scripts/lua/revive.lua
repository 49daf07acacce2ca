-- Puts dead jobs back where they waited, with a clean record: nothing delivered, no expiry.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2…]  ids
-- Result    for each id 1, or 0 if it is not dead or has no message left to deliver

local function has_message(id)
  return attempt('HEXISTS', JOB .. id, 'message') == 1 or attempt('HEXISTS', JOB .. id, 'payload') == 1
end

-- Gives a job its dedup key back, unless another one has it by now.
local function hold_unique_again(id)
  local key = attempt('HGET', JOB .. id, 'unique')
  if key then
    call('SET', UNIQUE .. key, id, 'NX')
  end
end

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  local verdicts, revived = {}, 0
  for i = 2, #ARGV do
    local id = ARGV[i]
    local back = call('ZSCORE', DEAD, id) and has_message(id)
    if back then
      call('ZADD', WAITING, waiting_score_of(id), id)
      account({id}, 1)
      if queue.unique then
        hold_unique_again(id)
      end
      renew_arrivals({id})
      call('HDEL', JOB .. id, 'reason', 'error', 'deliveries', 'consumer', 'expires_at')
      remove_dead(id)
      revived = revived + 1
    end
    append(verdicts, back and 1 or 0)
  end
  count('revived', revived)
  finish(now)
  return verdicts
end)
