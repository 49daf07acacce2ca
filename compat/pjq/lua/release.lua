-- Puts held jobs back to run next, in the order in which they were taken.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]   queue
-- ARGV[3]   consumer
-- ARGV[4]   'requeue' or 'some': these ids; 'all' that it holds; 'leave': all, and the consumer goes; at most MAX_PER_CALL of all
-- ARGV[5…]  ids
-- Result    for each job 1, or 0 if it was lost

local queue, consumer, which = ARGV[2], ARGV[3], ARGV[4]

return reply_of(function()
  first_write()
  local is_all = which == 'all' or which == 'leave'
  local ids = is_all and held_by(queue, consumer, MAX_PER_CALL) or args_from(5)
  local ours, is_back = {}, {}
  for _, id in ipairs(ids) do
    if is_held(queue, consumer, id) and is_whole(queue, id) then
      append(ours, id)
    elseif holds(queue, consumer, id) then
      drop(queue, id)
    end
  end
  for _, id in ipairs(in_order_of_return(queue, ours)) do
    if not is_back[id] then
      give_back(queue, id)
      is_back[id] = 1
    end
  end
  if which == 'leave' and #ids < MAX_PER_CALL then
    leave(queue, consumer)
  end
  local flags = {}
  for _, id in ipairs(ids) do
    append(flags, is_back[id] or 0)
  end
  return flags
end)
