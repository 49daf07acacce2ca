-- Puts held jobs back to run next, in the order in which they were taken.
--
-- KEYS[1]   root of the side keys
-- KEYS[2]   what pjq's keys begin with
-- ARGV[1]   now
-- ARGV[2]   queue
-- ARGV[3]   consumer
-- ARGV[4]   'some', 'all' that it holds, or 'leave': all, and the consumer ends; at most MAX_PER_CALL of all
-- ARGV[5…]  the ids of some
-- Result    for each job 1, or 0 if it was lost

local queue, consumer, which = ARGV[2], ARGV[3], ARGV[4]

return reply_of(function()
  first_write(queue)
  local ids = {}
  if which == 'some' then
    for i = 5, #ARGV do
      append(ids, ARGV[i])
    end
  else
    ids = held_by(queue, consumer, MAX_PER_CALL)
  end
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
