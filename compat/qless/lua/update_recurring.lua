-- Changes what recurring jobs are like, or ends them.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   id
-- ARGV[4…]  pairs of a field and its value; 'tags' and 'throttles' as JSON; none: ends them
-- Result    1; 0 if there are none of this id

local id = ARGV[3]
local NUMBERS = {priority = true, interval = true, retries = true, backlog = true, count = true}

-- The throttles without the old one of the queue, and with the new one at the end.
local function renamed(names, old, new)
  local kept = {}
  for _, name in ipairs(names) do
    if name ~= old then
      append(kept, name)
    end
  end
  append(kept, new)
  return kept
end

return reply_of(function()
  local now = seconds()
  local key = QL .. 'r:' .. id
  local queue, interval, throttles = unpack(call('HMGET', key, 'queue', 'interval', 'throttles'))
  if not queue then
    return 0
  end
  if #ARGV < 4 then
    call('DEL', key)
    call('ZREM', zset(queue, 'recur'), id)
    return 1
  end
  for i = 4, #ARGV, 2 do
    local name, value = ARGV[i], ARGV[i + 1]
    if NUMBERS[name] then
      value = tonumber(value)
    end
    if name == 'interval' then
      call('ZINCRBY', zset(queue, 'recur'), value - tonumber(interval), id)
    elseif name == 'queue' then
      local due = call('ZSCORE', zset(queue, 'recur'), id)
      call('ZADD', zset(value, 'recur'), due, id)
      if value ~= queue then
        call('ZREM', zset(queue, 'recur'), id)
      end
      register_queue(now, value)
      if throttles then
        call('HSET', key, 'throttles', json_list(renamed(throttles_in(throttles), own_throttle(queue), own_throttle(value))))
      end
      queue = value
    end
    call('HSET', key, name, value)
  end
  return 1
end)
