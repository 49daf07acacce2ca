-- Takes jobs out of the outbox: those that queues of the dead letter exchange have taken end here, the others stay dead.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2…]  for each job three values: id, its number in the outbox, '1' if it was taken or ''
-- Result    how many have ended
--
-- A job that has another number was revived and has died again meanwhile: that is another dead letter.

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  sample(now)
  local ended, forwarded = {}, 0
  for i = 2, #ARGV, 3 do
    local id, number = ARGV[i], call('ZSCORE', OUTBOX, ARGV[i])
    if number and tonumber(number) == tonumber(ARGV[i + 1]) then
      if ARGV[i + 2] == '1' then
        append(ended, id)
        forwarded = forwarded + call('ZREM', DEAD, id)
      end
      call('ZREM', OUTBOX, id)
    end
  end
  delete_jobs(ended)
  count('forwarded', forwarded)
  return forwarded
end)
