-- Deletes a queue with everything in it, a chunk at a time; what makes it exist goes last.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   '1' to refuse while a consumer has a lease
-- ARGV[3]   '1' to refuse while a job waits, is scheduled, blocked or held
-- ARGV[4]   most jobs to delete; fewer go if their messages are large
-- Result    {'missing' | 'used' | 'filled' | 'deleted', jobs deleted, 1 if there is more}

local limit = tonumber(ARGV[4])

local function is_filled()
  local filled = call('ZCARD', WAITING) + call('ZCARD', SCHEDULED) + call('SCARD', BLOCKED) > 0
  each_held(function(key) filled = filled or call('ZCARD', key) > 0 end)
  return filled
end

-- Deletes up to `most` blocked jobs with what they wait for. Returns how many, and whether there may be more.
local function clear_blocked(most)
  local ids = freeable(call('SRANDMEMBER', BLOCKED, most))
  local done, left = {}, MAX_PER_CALL
  for _, id in ipairs(ids) do
    local needed = call('SRANDMEMBER', NEEDS .. id, left)
    for _, other in ipairs(needed) do
      call('DEL', UNBLOCKS .. other)
    end
    in_slices('SREM', NEEDS .. id, needed)
    left = left - #needed
    if left == 0 then
      break
    end
    append(done, id)
  end
  delete_jobs(done)
  in_slices('SREM', BLOCKED, done)
  return #done, call('EXISTS', BLOCKED) == 1
end

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  if not queue.schema then
    return {'missing', 0, 0}
  end
  if ARGV[2] == '1' and count_consumers(now) > 0 then
    return {'used', 0, 0}
  end
  if ARGV[3] == '1' and is_filled() then
    return {'filled', 0, 0}
  end
  local places = {WAITING, SCHEDULED, DEAD, DONE}
  each_held(function(key) append(places, key) end)
  local deleted = 0
  for _, key in ipairs(places) do
    local cleared, more = clear(key, limit - deleted)
    deleted = deleted + cleared
    if more then
      return {'deleted', deleted, 1}
    end
  end
  local cleared, more = clear_blocked(limit - deleted)
  deleted = deleted + cleared
  if more then
    return {'deleted', deleted, 1}
  end
  forget_history()
  call('DEL', META, WAITING, SCHEDULED, CONSUMERS, DEAD, DONE, WAKE, OUTBOX, MOVES, LETTERS, UNREPORTED)
  return {'deleted', deleted, 0}
end)
