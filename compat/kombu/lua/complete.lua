-- Acks messages: the same for those whose task is done, has failed, or was rejected; kombu keeps none of them.
--
-- KEYS, ARGV[1…6]   see _common.lua
-- ARGV[7]   queue
-- ARGV[8]   consumer
-- ARGV[9…]  delivery tags
-- Result    for each tag 'removed', or 'lost' for one that this consumer does not have (any more)

local queue, consumer = ARGV[7], ARGV[8]

return reply_of(function()
  first_write()
  local verdicts = {}
  for i = 9, #ARGV do
    local is_own = owns(queue, consumer, ARGV[i])
    if is_own then
      end_message(ARGV[i])
      unmark(queue, ARGV[i])
    end
    append(verdicts, is_own and 'removed' or 'lost')
  end
  return verdicts
end)
