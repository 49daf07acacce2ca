-- Extends a consumer's lease, and gives what it has a new time in the index: kombu's processes take it for just popped.
--
-- KEYS, ARGV[1…6]   see _common.lua
-- ARGV[7]   queue
-- ARGV[8]   consumer
-- ARGV[9]   lease, ms from now
-- Result    1, or 0 if the lease has lapsed and what the consumer had has gone back

local queue, consumer = ARGV[7], ARGV[8]

return reply_of(function()
  local seconds = moment()
  first_write()
  if not renew_lease(queue, consumer, clock() + tonumber(ARGV[9])) then
    return 0
  end
  local tags = owned_by(queue, consumer)
  for i, tag in ipairs(tags) do
    mark(queue, tag, seconds + (#tags - i) / 1000000)
  end
  return 1
end)
