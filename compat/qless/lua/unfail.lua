-- Puts the oldest failed jobs of a group into a queue. The number of failed jobs in the statistics stays, as with qless.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]  queue
-- ARGV[4]  group
-- ARGV[5]  most jobs
-- Result   how many
--
-- What is listed without a record is gone, and only leaves the list.

local queue, group, limit = ARGV[3], ARGV[4], math.min(tonumber(ARGV[5]), MAX_PER_CALL)

return reply_of(function()
  local now = seconds()
  local list = QL .. 'f:' .. group
  local count = 0
  local ids = call('LRANGE', list, -limit, -1)
  if limit > 0 and #ids > 0 then
    for i = #ids, 1, -1 do
      local id = ids[i]
      local priority, retries = fields_of(id, 'priority', 'retries')
      if priority ~= nil then
        log_event(now, queue, id, 'put', {q = queue})
        call('HMSET', RECORD .. id, 'state', 'waiting', 'worker', '', 'expires', 0, 'queue', queue, 'remaining', retries or 5)
        into_work(now, queue, priority, id)
        count = count + 1
      end
    end
    call('LTRIM', list, 0, -limit - 1)
    if call('EXISTS', list) == 0 then
      call('SREM', QL .. 'failures', group)
    end
  end
  return count
end)
