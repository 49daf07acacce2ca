-- Declares a queue: creates it, or updates its arguments. Refused ('order') for another priority order than its first one.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   arguments, JSON text; '' keeps those that stand
-- ARGV[3]   priority order of a new queue, 'ascending' or 'descending'
-- ARGV[4]   '1' if a queue that has the other order is to be refused, '' to take the order that stands
-- ARGV[5]   ms after which an unused queue expires, '' never
-- ARGV[6]   ms for which acked jobs are kept in done, '' not at all
-- Result    {1 if created, waiting, consumers with a lease, routes}

local function set_or_clear(field, value)
  if value == '' then
    call('HDEL', META, field)
  else
    call('HSET', META, field, value)
  end
end

-- A queue that is temporary no more.
local function last_for_ever()
  local function persist(key)
    call('PERSIST', key)
  end
  for key = 1, 7 do
    persist(KEYS[key])
  end
  each_held(persist)
  each_job(persist)
  call('HDEL', META, 'horizon')
end

return answer(function()
  local now = clock()
  open()
  local created = 0
  if not exists then
    create_queue(now, ARGV[3])
    created = 1
  elseif ARGV[4] == '1' and descending ~= (ARGV[3] == 'descending') then
    refuse('order', descending and 'descending' or 'ascending')
  end
  if ARGV[2] ~= '' then
    call('HSET', META, 'arguments', ARGV[2])
    set_or_clear('expires', ARGV[5])
    set_or_clear('retention', ARGV[6])
    local temporary = expires
    expires = tonumber(ARGV[5])
    if temporary and not expires then
      last_for_ever()
    end
  end
  settle(now)
  local live = call('ZCOUNT', CONSUMERS, '(' .. now, '+inf')
  return {created, call('ZCARD', WAITING), live, call('HGET', META, 'routes') or '0'}
end)
