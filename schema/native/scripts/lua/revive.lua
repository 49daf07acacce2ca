-- Puts dead jobs back where they waited, with a clean record: nothing delivered, no expiry.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2…]  ids
-- Result    for each id 1, or 0 if it is not dead, has no message left to deliver, is on the way to another queue, or the queue is at its
--           greatest length and refuses more. A queue that drops its first jobs instead does so now

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  sample(now)
  local verdicts, revived = {}, 0
  for i = 2, #ARGV do
    local id = ARGV[i]
    local back = call('ZSCORE', DEAD, id) and has_message(id) and not is_moving(id) and has_room_for(id)
    if back then
      revive(id)
      revived = revived + 1
    end
    append(verdicts, back and 1 or 0)
  end
  count('revived', revived)
  make_room_for(now, revived)
  finish(now)
  return verdicts
end)
