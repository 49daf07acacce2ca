-- Refuses where jobs can't be moved to a queue: there is none, or it takes no more.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- Result    ''

return reply_of(function()
  open_queue()
  if not queue.schema then
    refuse('refused', 'there is no such queue to move jobs to; declare it, or look at its name')
  end
  if queue.overflow == 'reject-publish' and is_full(1, 0) then
    refuse('refused', 'it is at its greatest length and takes no more jobs')
  end
  return ''
end)
