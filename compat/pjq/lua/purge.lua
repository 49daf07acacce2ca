-- Deletes jobs that wait, those first that would run first, and then retries that are delayed.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]   queue
-- ARGV[3]   most jobs to delete; fewer large ones
-- Result    {deleted, 1 if there may be more}
--
-- A job that was added twice keeps its hash while another of its ids is left within the next LOOKAHEAD.

local LOOKAHEAD = 10000

-- Bytes of payloads after which a call stops: it reads them to see of which queue they are.
local MOST_BYTES = 16 * 1024 * 1024

local queue, limit = ARGV[2], math.min(tonumber(ARGV[3]), MAX_PER_CALL)

-- Those of our leases that nobody holds, at most `most`.
local function delayed(most)
  local found = {}
  local held = call('HLEN', SIDE .. 'held:' .. queue)
  for _, id in ipairs(most > 0 and call('ZRANGE', leases(queue), 0, most + held - 1) or {}) do
    if #found < most and not holder_of(queue, id) and is_leased(queue, id) then
      append(found, id)
    end
  end
  return found
end

-- How many jobs from the tail go in this call.
local function portion()
  local bytes, ids = 0, call('LRANGE', queued(queue), -limit, -1)
  for i = #ids, 1, -1 do
    bytes = bytes + (attempt('HSTRLEN', record_of(ids[i]), 'json') or 0)
    if bytes > MOST_BYTES then
      return #ids - i + 1
    end
  end
  return #ids
end

return reply_of(function()
  first_write()
  local waiting = portion()
  local ids, is_left = {}, {}
  if waiting > 0 then
    ids = call('LRANGE', queued(queue), -waiting, -1)
    for _, id in ipairs(call('LRANGE', queued(queue), -waiting - LOOKAHEAD, -waiting - 1)) do
      is_left[id] = true
    end
    call('LTRIM', queued(queue), 0, -waiting - 1)
  end
  for _, id in ipairs(ids) do
    if not is_left[id] then
      discard(queue, id)
    end
  end
  if call('EXISTS', queued(queue)) == 1 then
    return {waiting, 1}
  end
  local later_ones = delayed(limit - waiting)
  for _, id in ipairs(later_ones) do
    call('ZREM', dispatched(queue), id)
    drop(queue, id)
    discard(queue, id)
  end
  local deleted = waiting + #later_ones
  return {deleted, deleted == limit and 1 or 0}
end)
