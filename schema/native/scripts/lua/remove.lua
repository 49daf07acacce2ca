-- Deletes one job wherever it stands, or where it is expected to, unless a consumer holds it. A blocked job that waits for more than
-- LIMIT others goes in several calls: it stays blocked until the last one.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   id
-- ARGV[3]   the only place from which to delete it: a word as in the result; '' any
-- Result    the place it was in: 'waiting', 'scheduled', 'dead', 'done' or 'blocked'; 'held' if it is running, and stays; '' if
--           there is no such job; 'more' if it is to be removed again, until it has gone

local id, only = ARGV[2], ARGV[3]

local function is_wanted(place)
  return only == '' or only == place
end

return answer(function()
  local now = clock()
  open()
  drain()
  local consumer = attempt('HGET', JOB .. id, 'consumer')
  if consumer and call('ZSCORE', HELD .. consumer, id) then
    return 'held'
  end
  for _, place in ipairs({{'waiting', WAITING}, {'scheduled', SCHEDULED}, {'dead', DEAD}, {'done', DONE}}) do
    if is_wanted(place[1]) and call('ZSCORE', place[2], id) then
      if place[2] == WAITING then
        weigh({id}, -1)
      end
      erase({id})
      call('ZREM', place[2], id)
      call('ZREM', OUTBOX, id)
      count('removed', 1)
      settle(now)
      return place[1]
    end
  end
  if is_wanted('blocked') and call('SISMEMBER', BLOCKED, id) == 1 then
    local needed = call('SRANDMEMBER', NEEDS .. id, LIMIT)
    for _, other in ipairs(needed) do
      call('SREM', UNBLOCKS .. other, id)
    end
    if #needed == LIMIT and call('SCARD', NEEDS .. id) > LIMIT then
      in_slices('SREM', NEEDS .. id, needed)
      return 'more'
    end
    call('DEL', NEEDS .. id)
    erase({id})
    call('SREM', BLOCKED, id)
    count('removed', 1)
    return 'blocked'
  end
  return ''
end)
