-- What makes jobs every so often. Changes nothing.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]  id
-- Result   {id, {field, value, …}, when it makes the next one}; {} if there is none of this id

return reply_of(function()
  local id = ARGV[3]
  local queue = call('HGET', QL .. 'r:' .. id, 'queue')
  if not queue then
    return {}
  end
  return {id, call('HGETALL', QL .. 'r:' .. id), call('ZSCORE', zset(queue, 'recur'), id)}
end)
