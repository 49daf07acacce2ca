-- The jobs of a queue in one of qless's states. Changes nothing.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]  queue
-- ARGV[4]  'waiting', 'running', 'stalled', 'scheduled', 'depends', 'throttled', 'recurring'; 'complete' of all queues
-- ARGV[5]  how many to leave out
-- ARGV[6]  how many
-- Result   ids: in the order of runs, or those that are due first, or the last one to be completed first

local queue, state, first, count = ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local INDEXES = {scheduled = 'scheduled', depends = 'depends', throttled = 'throttled', recurring = 'recur'}

return reply_of(function()
  local now = seconds()
  if state == 'waiting' then
    return call('ZREVRANGE', zset(queue, 'work'), first, first + count - 1)
  elseif state == 'running' then
    return call('ZRANGEBYSCORE', locks_of(queue), now, '+inf', 'LIMIT', first, count)
  elseif state == 'stalled' then
    return call('ZRANGEBYSCORE', locks_of(queue), '-inf', now, 'LIMIT', first, count)
  elseif state == 'complete' then
    return call('ZREVRANGE', QL .. 'completed', first, first + count - 1)
  end
  return call('ZRANGE', zset(queue, INDEXES[state]), first, first + count - 1)
end)
