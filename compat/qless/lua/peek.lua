-- Shows the jobs that run next; makes those that recurring ones are due for, and promotes what is due, as qless does when asked.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]  queue
-- ARGV[4]  how many
-- Result   ids

local queue, limit = ARGV[3], math.min(tonumber(ARGV[4]), MAX_PER_CALL)

return reply_of(function()
  local now = seconds()
  local ids = call('ZRANGEBYSCORE', locks_of(queue), '-inf', now, 'LIMIT', 0, limit)
  spawn(now, queue, limit - #ids)
  promote(now, queue, limit - #ids)
  if #ids < limit then
    for _, id in ipairs(call('ZREVRANGE', zset(queue, 'work'), 0, limit - #ids - 1)) do
      append(ids, id)
    end
  end
  return ids
end)
