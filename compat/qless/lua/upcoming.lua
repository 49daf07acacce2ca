-- The next scheduled jobs of a queue, the next one first. Changes nothing.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]  queue
-- ARGV[4]  most jobs
-- ARGV[5]  bytes of data that the reply may have; one job comes at any rate
-- Result   {{when it is due, ms, id, {field, value, …}} …}

local queue, most, space = ARGV[3], math.min(tonumber(ARGV[4]), MAX_PER_CALL), tonumber(ARGV[5])

return reply_of(function()
  local entries, jobs, used = call('ZRANGE', zset(queue, 'scheduled'), 0, MAX_PER_CALL - 1, 'WITHSCORES'), {}, 0
  for i = 1, #entries, 2 do
    local id, due = entries[i], tonumber(entries[i + 1])
    local was_in, data = fields_of(id, 'queue', 'data')
    if #jobs < most and was_in == queue and data and due < math.huge then
      used = used + #data
      if #jobs > 0 and used > space then
        break
      end
      append(jobs, {string.format('%.0f', due_ms(due)), id, call('HGETALL', RECORD .. id)})
    end
  end
  return jobs
end)
