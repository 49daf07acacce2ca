-- Does an operator's action to one job that nobody holds.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   action, see _steering.lua
-- ARGV[3]   id
-- ARGV[4…]  what the action needs: reprioritise the priority; move the other queue; edit the payload, what it is ('task', 'json' or 'other'), and as JSON the
--           texts of a task's arguments and keyword arguments
-- Result    'done', 'missing', 'held', 'refused', or 'more' if the call is to be sent again

local action, id = ARGV[2], ARGV[3]

return reply_of(function()
  local now = clock()
  open_queue()
  if action ~= 'edit' then -- which may need memory, as publishing does
    first_write()
    sample(now)
  end
  local role, place = place_of(id)
  if not role or role == 'held' then
    return role or 'missing'
  end
  if not STEERED[action][role] then
    return 'refused'
  end
  local outcome = steer(now, action, id, role, place, unpack(ARGV, 4))
  make_room_for(now, action == 'requeue' and outcome == 'done' and 1 or 0)
  finish(now)
  return outcome == 'same' and 'done' or outcome
end)
