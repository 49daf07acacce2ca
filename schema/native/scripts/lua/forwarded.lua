-- Takes jobs out of the outbox: those that queues of the dead letter exchange have taken end here, the others stay dead. A worker has
-- to report the end of a task that stays.
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
  local ended, stays = {}, false
  for i = 2, #ARGV, 3 do
    local id, number = ARGV[i], call('ZSCORE', OUTBOX, ARGV[i])
    if number and tonumber(number) == tonumber(ARGV[i + 1]) then
      if ARGV[i + 2] == '1' then
        append(ended, id)
      else
        stays = true
        require_report(id, attempt('HGET', JOB .. id, 'reason') or nil)
        call('ZREM', OUTBOX, id)
      end
    end
  end
  account_dead(ended, -1)
  delete_jobs(ended)
  remove_dead(ended)
  count('forwarded', #ended)
  if stays then
    trim_dead(now)
  end
  return #ended
end)
