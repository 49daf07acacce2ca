-- Gives jobs back that a consumer holds: they wait again, and no attempt is counted.
--
-- KEYS[1]   root of the side keys
-- KEYS[2]   what bee's keys begin with
-- ARGV[1]   now
-- ARGV[2]   the consumer's hive
-- ARGV[3]   queue
-- ARGV[4]   '1' if they were never begun: they get their turn of before
-- ARGV[5]   'some' for the ids that follow, 'all' for up to MAX_PER_CALL of all, 'end' if the consumer goes when it holds no more
-- ARGV[6…]  ids
-- Result    for each id 1, or 0: it was not the consumer's any more

local queue, worker = ARGV[3], HIVE .. ':' .. ARGV[3]

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
  enqueue(now, queue, id, options_of(found[1]), ARGV[4] == '1' and last_turn(list_of(found[2])) or nil)
  unlock(queue, id, worker)
  return 1
end

return reply_of(function()
  local now, ids, flags = clock(), {unpack(ARGV, 6)}, {}
  first_write()
  if ARGV[5] ~= 'some' then
    ids = call('SRANDMEMBER', held_of(worker), MAX_PER_CALL)
    table.sort(ids)
  end
  for _, id in ipairs(ids) do
    append(flags, give_back(now, id))
  end
  if ARGV[5] ~= 'some' then
    for index, id in ipairs(ids) do
      if flags[index] == 0 then
        call('SREM', held_of(worker), id) -- somebody else has it by now
      end
    end
  end
  if ARGV[5] == 'end' and #ids < MAX_PER_CALL then
    end_lease(queue, HIVE)
  end
  return flags
end)
