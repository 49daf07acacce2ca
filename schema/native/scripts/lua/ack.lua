-- Ends jobs that a consumer has finished, and lets jobs go on that have waited for them.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   consumer
-- ARGV[3…]  ids
-- Result    for each id 'acked', 'cancelled' or 'lost'
--
-- A late ack: the lease lapsed and the job went back, but nobody has taken it since (its last holder is still this consumer). The
-- work is done, so the copy that waits to be run again is removed: 'cancelled'. Where another consumer has or had it: 'lost'.

-- Most jobs past their retention that one call deletes: more than it adds in the long run, little enough to go unnoticed.
local SWEEP = 100

local consumer = ARGV[2]
local HELD_HERE = HELD .. consumer

-- The key to which a job of this consumer went back, or nil.
local function returned_to(id)
  local found = attempt('HMGET', JOB .. id, 'consumer', 'reason')
  if not found or found[1] ~= consumer then
    return nil
  end
  for _, key in ipairs({WAITING, SCHEDULED}) do
    if call('ZSCORE', key, id) then
      return key
    end
  end
  if found[2] == 'delivery_limit' and call('ZSCORE', DEAD, id) then
    return DEAD
  end
  return nil
end

local unblocked, has_blocked = false, false

-- Moves a job from a key to done, or out of existence.
local function end_job(now, id, key)
  if has_blocked then
    unblocked = unblock(id) or unblocked
  end
  if key == WAITING then
    account({id}, -1)
  end
  if queue.retention then
    call('ZADD', DONE, now, id)
    renew_arrivals({id})
    if queue.unique then
      release_unique(id)
    end
  else
    delete_jobs({id})
  end
  if key == DEAD then
    remove_dead(id)
  else
    call('ZREM', key, id)
  end
end

local function sweep(now)
  local old = freeable(call('ZRANGEBYSCORE', DONE, '-inf', now - queue.retention, 'LIMIT', 0, SWEEP))
  delete_jobs(old)
  in_slices('ZREM', DONE, old)
end

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  sample(now)
  has_blocked = call('EXISTS', BLOCKED) == 1 -- others may be let go on meanwhile, but none comes
  local verdicts, runs = {}, {}
  local acked, cancelled, looked_at = 0, 0, 0
  local first, step = sampling(#ARGV - 2)
  for i = 3, #ARGV do
    local id = ARGV[i]
    local key = call('ZSCORE', HELD_HERE, id) and HELD_HERE or returned_to(id)
    if not key then
      append(verdicts, 'lost')
    else
      if (i - 2) % step == first % step then
        looked_at = looked_at + 1
        append(runs, run_time(now, id))
      end
      end_job(now, id, key)
      if key == HELD_HERE then
        append(verdicts, 'acked')
        acked = acked + 1
      else
        append(verdicts, 'cancelled')
        cancelled = cancelled + 1
      end
    end
  end
  observe(RUNS, runs, looked_at, acked + cancelled)
  count('acked', acked)
  count('cancelled', cancelled)
  if queue.retention then
    sweep(now)
  end
  if unblocked or queue.expires then
    finish(now) -- else nothing has come to wait
  end
  return verdicts
end)
