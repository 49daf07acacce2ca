-- Acks: what the scripts need that end jobs which a consumer has finished (ack.lua, take.lua), after _history.lua.
--
-- A late ack: the lease lapsed and the job went back, but nobody has taken it since (its last holder is still this consumer). The
-- work is done, so the copy that waits to be run again is removed: 'cancelled'. Where another consumer has or had it: 'lost'.

-- Most jobs past their retention that one call deletes: more than it adds in the long run, little enough to go unnoticed.
local SWEEP = 100

-- The key to which a job of a consumer went back, or nil.
local function returned_to(consumer, id)
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

-- Moves jobs from a key to done, or out of existence. Returns whether that lets others go on, which have waited for them.
local function end_jobs(now, ids, key)
  local unblocked = false
  if #ids == 0 then
    return unblocked
  end
  if call('EXISTS', BLOCKED) == 1 then
    for _, id in ipairs(ids) do
      unblocked = unblock(id) or unblocked
    end
  end
  if key == WAITING then
    account(ids, -1)
  end
  if key == DEAD then
    account_dead(ids, -1)
  end
  if queue.retention then
    local members = {}
    for _, id in ipairs(ids) do
      append(members, now, id)
      if queue.unique then
        release_unique(id)
      end
    end
    in_slices('ZADD', DONE, members)
    renew_arrivals(ids)
  else
    delete_jobs(ids)
  end
  if key == DEAD then
    remove_dead(ids)
  else
    in_slices('ZREM', key, ids)
  end
  return unblocked
end

local function sweep(now)
  local old = freeable(call('ZRANGEBYSCORE', DONE, '-inf', now - queue.retention, 'LIMIT', 0, SWEEP))
  delete_jobs(old)
  in_slices('ZREM', DONE, old)
end

-- Ends the jobs of a consumer whose ids are the arguments from `first` on. Returns for each 'acked', 'cancelled' or 'lost', and
-- whether others go on that have waited for them.
local function ack(now, consumer, first)
  local held = HELD .. consumer
  local verdicts, acked, is_acked, cancelled, unblocked = {}, {}, {}, 0, false
  local runs, looked_at = {}, 0
  local timed, step = sampling(#ARGV - first + 1)
  for i = first, #ARGV do
    local id = ARGV[i]
    local is_held = not is_acked[id] and call('ZSCORE', held, id)
    local key = is_held and held or returned_to(consumer, id)
    if key and (i - first + 1) % step == timed % step then
      looked_at = looked_at + 1
      append(runs, run_time(now, id))
    end
    if is_held then
      append(acked, id)
      is_acked[id] = true
      append(verdicts, 'acked')
    elseif key then
      unblocked = end_jobs(now, {id}, key) or unblocked
      cancelled = cancelled + 1
      append(verdicts, 'cancelled')
    else
      append(verdicts, 'lost')
    end
  end
  unblocked = end_jobs(now, acked, held) or unblocked
  observe(RUNS, runs, looked_at, #acked + cancelled)
  count('acked', #acked)
  count('cancelled', cancelled)
  if queue.retention then
    sweep(now)
  end
  return verdicts, unblocked
end
