-- Gives jobs back that a consumer holds: they wait again, and no attempt is counted.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue
-- ARGV[4]   'requeue': these ids, whose turn begins anew; else they were never begun, and get that of before: 'some': these ids;
--           'all' that it holds; 'leave': all, and the consumer goes; at most MAX_PER_CALL of all
-- ARGV[5…]  ids
-- Result    for each id 1, or 0: it was not the consumer's any more

local queue, worker, which = ARGV[3], HIVE .. ':' .. ARGV[3], ARGV[4]
local is_all = which == 'all' or which == 'leave'

-- When a job came into the queue last; nil where its history does not tell.
local function last_turn(history)
  local turn
  for _, event in ipairs(history) do
    if type(event) == 'table' and event.event == 'queued' then
      turn = tonumber(event.timestamp)
    end
  end
  return turn
end

local function give_back(now, id)
  if not is_held(queue, id) then
    return 0
  end
  local found = call('HMGET', record_of(id), 'options', 'history')
  enqueue(now, queue, id, options_of(found[1]), which ~= 'requeue' and last_turn(list_of(found[2])) or nil)
  unlock(queue, id, worker)
  return 1
end

return reply_of(function()
  local now, ids, flags = clock(), args_from(5), {}
  first_write()
  if is_all then
    ids = call('SRANDMEMBER', held_of(worker), MAX_PER_CALL)
    table.sort(ids)
  end
  for _, id in ipairs(ids) do
    append(flags, give_back(now, id))
  end
  if is_all then
    for index, id in ipairs(ids) do
      if flags[index] == 0 then
        call('SREM', held_of(worker), id) -- somebody else has it by now
      end
    end
  end
  if which == 'leave' and #ids < MAX_PER_CALL then
    end_lease(queue, HIVE)
  end
  return flags
end)
