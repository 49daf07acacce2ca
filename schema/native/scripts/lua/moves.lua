-- Shows the jobs on the way to other queues, the first first.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   how many to leave out at the beginning
-- ARGV[3]   most jobs to show; fewer come, but one at least, if their messages are large
-- Result    {1 if the order is descending, for each job {id, number, queue to go to, role of the place where it was, score in waiting}}

-- Bytes of messages that a client reads and sends on at once.
local MOST_BYTES = 256 * 1024

local first = tonumber(ARGV[2])

return reply_of(function()
  open_queue()
  first_write()
  local shown, bytes, gone = {queue.priority_order == 'descending' and 1 or 0}, 0, {}
  local entries = call('ZRANGE', MOVES, first, first + ARGV[3] - 1, 'WITHSCORES')
  for i = 1, #entries, 2 do
    local id = entries[i]
    local found = attempt('HMGET', JOB .. id, 'moved_to', 'moved_from') or {}
    if not (found[1] and found[2] and call('ZSCORE', DEAD, id)) then
      append(gone, id) -- deleted by one who knows of no moves
    else
      bytes = bytes + size_of(id)
      if #shown > 1 and bytes > MOST_BYTES then
        break
      end
      append(shown, {id, entries[i + 1], found[1], found[2], string.format('%.0f', waiting_score_of(id))})
    end
  end
  in_slices('ZREM', MOVES, gone)
  return shown
end)
