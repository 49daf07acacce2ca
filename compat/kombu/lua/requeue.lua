-- Gives messages back that a consumer has: to run last, as kombu does with what a consumer rejects in order to see it again.
--
-- KEYS, ARGV[1…6]   see _common.lua
-- ARGV[7]   queue
-- ARGV[8]   consumer
-- ARGV[9…]  delivery tags
-- Result    for each tag 1, or 0 for one that this consumer does not have (any more)

local queue, consumer = ARGV[7], ARGV[8]

return reply_of(function()
  first_write()
  local verdicts = {}
  for i = 9, #ARGV do
    local is_own = owns(queue, consumer, ARGV[i])
    if is_own then
      put_back(ARGV[i], 'LPUSH')
      unmark(queue, ARGV[i])
    end
    append(verdicts, is_own and 1 or 0)
  end
  return verdicts
end)
