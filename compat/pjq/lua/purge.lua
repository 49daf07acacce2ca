-- Deletes jobs that wait, those first that would run first, and then retries that are delayed.
--
-- KEYS[1]   root of the side keys
-- KEYS[2]   what pjq's keys begin with
-- ARGV[1]   now
-- ARGV[2]   queue
-- ARGV[3]   most jobs to delete
-- Result    {deleted, 1 if there may be more}
--
-- A job that was added twice keeps its hash while another of its ids is left within the next LOOKAHEAD.

local LOOKAHEAD = 10000

local queue, limit = ARGV[2], math.min(tonumber(ARGV[3]), MAX_PER_CALL)

-- Those of our leases that nobody holds, at most `most`.
local function delayed(most)
  local found = {}
  for _, id in ipairs(call('ZRANGE', leases(queue), 0, -1)) do
    if #found < most and not holder_of(queue, id) and is_leased(queue, id) then
      append(found, id)
    end
  end
  return found
end

return reply_of(function()
  first_write(queue)
  local ids = call('LRANGE', queued(queue), -limit, -1)
  local is_left = {}
  for _, id in ipairs(call('LRANGE', queued(queue), -limit - LOOKAHEAD, -limit - 1)) do
    is_left[id] = true
  end
  call('LTRIM', queued(queue), 0, -limit - 1)
  for _, id in ipairs(ids) do
    if not is_left[id] then
      discard(queue, id)
    end
  end
  local later_ones = delayed(limit - #ids)
  for _, id in ipairs(later_ones) do
    call('ZREM', dispatched(queue), id)
    drop(queue, id)
    discard(queue, id)
  end
  local deleted = #ids + #later_ones
  return {deleted, deleted == limit and 1 or 0}
end)
