-- Deletes one job wherever it stands, or where it is expected to, unless a consumer holds it. A blocked job that waits for more than
-- MAX_PER_CALL others goes in several calls: it stays blocked until the last one.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   id
-- ARGV[3]   the role of the only place from which to delete it, as in the result; '' any
-- Result    the role of its place: 'waiting', 'scheduled', 'dead', 'done' or 'blocked'; 'held' if it is running, and stays; '' if
--           there is no such job; 'more' if it is to be removed again, until it has gone

local id, only = ARGV[2], ARGV[3]

local function is_wanted(role)
  return only == '' or only == role
end

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  local consumer = attempt('HGET', JOB .. id, 'consumer')
  if consumer and call('ZSCORE', HELD .. consumer, id) then
    return 'held'
  end
  for _, place in ipairs({{'waiting', WAITING}, {'scheduled', SCHEDULED}, {'dead', DEAD}, {'done', DONE}}) do
    if is_wanted(place[1]) and call('ZSCORE', place[2], id) then
      if place[2] == WAITING then
        account({id}, -1)
      end
      delete_jobs({id})
      call('ZREM', place[2], id)
      call('ZREM', OUTBOX, id)
      count('removed', 1)
      finish(now)
      return place[1]
    end
  end
  if is_wanted('blocked') and call('SISMEMBER', BLOCKED, id) == 1 then
    local needed = call('SRANDMEMBER', NEEDS .. id, MAX_PER_CALL)
    for _, other in ipairs(needed) do
      call('SREM', UNBLOCKS .. other, id)
    end
    if #needed == MAX_PER_CALL and call('SCARD', NEEDS .. id) > MAX_PER_CALL then
      in_slices('SREM', NEEDS .. id, needed)
      return 'more'
    end
    call('DEL', NEEDS .. id)
    delete_jobs({id})
    call('SREM', BLOCKED, id)
    count('removed', 1)
    return 'blocked'
  end
  return ''
end)
