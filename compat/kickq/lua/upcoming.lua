-- The next scheduled jobs of a queue, the next one first. Changes nothing.
--
-- KEYS, and ARGV[1] to ARGV[3]: see _common.lua
-- ARGV[4]   queue
-- ARGV[5]   most jobs
-- ARGV[6]   bytes of documents that the reply may have; one job comes at any rate
-- Result    {{when it is due, ms, id, lapses, itemData, ferryman or ''} …}
--
-- One index has the scheduled jobs of all queues: the first MAX_PER_CALL of them are looked at.

local queue, most, space = ARGV[4], math.min(tonumber(ARGV[5]), MAX_PER_CALL), tonumber(ARGV[6])

return reply_of(function()
  local entries, jobs, used = call('ZRANGE', SCHEDULED, 0, MAX_PER_CALL - 1, 'WITHSCORES'), {}, 0
  for i = 1, #entries, 2 do
    local id, due = entries[i], tonumber(entries[i + 1])
    local job = #jobs < most and due < math.huge and attempt('HGET', JOB .. id, 'name') == queue and open_job(id)
    if job then
      used = used + #job.text
      if #jobs > 0 and used > space then
        break
      end
      local lapses, extra = call('HGET', SIDE .. 'lapses:' .. queue, id) or '0', attempt('HGET', JOB .. id, 'ferryman') or ''
      append(jobs, {digits(math.max(0, math.ceil(due))), id, lapses, job.text, extra})
    end
  end
  return jobs
end)
