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

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  sample(now)
  local role, place = place_of(id)
  if role == 'held' then
    return 'held'
  end
  if not role or (only ~= '' and only ~= role) then
    return ''
  end
  if role == 'blocked' and not remove_blocked(id) then
    return 'more'
  end
  if place then
    remove_from(place, id)
    finish(now)
  end
  count('removed', 1)
  return role
end)
