-- Makes jobs of a kind from now on, one each so many seconds: stores what they are like.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue
-- ARGV[4]   id
-- ARGV[5]   klass
-- ARGV[6]   data, JSON
-- ARGV[7]   interval, seconds
-- ARGV[8]   seconds until the first one
-- ARGV[9]   priority
-- ARGV[10]  tags, JSON
-- ARGV[11]  retries
-- ARGV[12]  backlog: how many it makes up for after a pause; 0 all
-- ARGV[13]  throttles, JSON; reqless only
-- Result    its id

local queue, id = ARGV[3], ARGV[4]

return reply_of(function()
  local now = seconds()
  local key = QL .. 'r:' .. id
  local known = call('HMGET', key, 'queue', 'count')
  local fields = {
    'jid', id, 'klass', ARGV[5], 'data', ARGV[6], 'priority', tonumber(ARGV[9]), 'tags', json_list(table_in(ARGV[10])),
    'state', 'recur', 'queue', queue, 'type', 'interval', 'count', known[2] or 0, 'interval', tonumber(ARGV[7]),
    'retries', tonumber(ARGV[11]), 'backlog', tonumber(ARGV[12]),
  }
  if is_reqless(queue) then
    local throttles = throttles_in(ARGV[13])
    append(throttles, own_throttle(queue))
    append(fields, 'throttles', json_list(throttles))
  end
  call('HMSET', key, unpack(fields))
  call('ZADD', zset(queue, 'recur'), now + tonumber(ARGV[8]), id)
  if known[1] and known[1] ~= queue then
    call('ZREM', zset(known[1], 'recur'), id)
  end
  register_queue(now, queue)
  return id
end)
