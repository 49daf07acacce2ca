-- Gives a job another priority. One that waits stands before all others of that priority then, as their scores are lower by the time.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]  id
-- ARGV[4]  priority
-- Result   1; 0 if there is no such job

local id, priority = ARGV[3], tonumber(ARGV[4])

return reply_of(function()
  local queue = fields_of(id, 'queue')
  if not queue then
    return 0
  end
  if call('ZSCORE', zset(queue, 'work'), id) then
    call('ZADD', zset(queue, 'work'), priority, id)
  end
  call('HSET', RECORD .. id, 'priority', priority)
  return 1
end)
