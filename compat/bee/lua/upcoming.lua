-- The next delayed jobs of a queue, the next one first. Changes nothing.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue
-- ARGV[4]   most jobs
-- ARGV[5]   bytes of data that the reply may have; one job comes at any rate
-- Result    {{when it is due, ms, and of the job what take.lua replies} …}

local queue, most, space = ARGV[3], math.min(tonumber(ARGV[4]), MAX_PER_CALL), tonumber(ARGV[5])

return reply_of(function()
  local entries, jobs, used = call('ZRANGE', set_of('delayed', queue), 0, MAX_PER_CALL - 1, 'WITHSCORES'), {}, 0
  for i = 1, #entries, 2 do
    local id, due = entries[i], tonumber(entries[i + 1])
    local found = #jobs < most and due < math.huge and attempt('HMGET', record_of(id), 'queue', 'options', 'data', 'retries', 'ferryman')
    if found and found[1] == queue and found[3] and type(decoded(found[2])) == 'table' then
      used = used + #found[3]
      if #jobs > 0 and used > space then
        break
      end
      local options = options_of(found[2])
      append(jobs, {
        string.format('%.0f', due), id, '0', found[3], celery_part(found[5]) and found[5] or '', 1, found[4] or '0',
        number_or_none(options.retries), number_or_none(options.priority)
      })
    end
  end
  return jobs
end)
