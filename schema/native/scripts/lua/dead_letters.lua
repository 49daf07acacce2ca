-- Shows dead jobs, those first that died first. Changes nothing.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   how many to leave out at the beginning
-- ARGV[3]   most jobs to show; fewer come, but one at least, if their messages are large
-- Result    {1 if the order is descending, for each job {id, number in the outbox or '0', score in waiting, time of death ms, deliveries,
--           {field, value, …}}}

local first = tonumber(ARGV[2])

return reply_of(function()
  open_queue()
  local shown = {queue.priority_order == 'descending' and 1 or 0}
  local dead = call('ZRANGE', DEAD, first, first + ARGV[3] - 1, 'WITHSCORES')
  local bytes = 0
  for i = 1, #dead, 2 do
    bytes = bytes + size_of(dead[i])
    if i > 1 and bytes > MAX_READ_BYTES then
      break
    end
    append(shown, dead_letter_reply(dead[i], call('ZSCORE', OUTBOX, dead[i]) or '0', dead[i + 1]))
  end
  return shown
end)
