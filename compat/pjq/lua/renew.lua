-- Extends a consumer's lease on what it holds: refreshes the scores in jobs_dispatched, and lets go of what others have by now.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]   queue
-- ARGV[3]   consumer
-- ARGV[4]   lease, ms from now
-- Result    1, or 0 for a consumer that is not known any more

local queue, consumer, lease_ms = ARGV[2], ARGV[3], tonumber(ARGV[4])

return reply_of(function()
  local at = moment()
  first_write()
  if not renew_lease(queue, consumer, milliseconds(at) + lease_ms) then
    return 0
  end
  local ids = in_order_of_return(queue, held_by(queue, consumer))
  for i, id in ipairs(ids) do
    if is_leased(queue, id) then
      lease(queue, id, lease_score(later(at, #ids - i), lease_ms))
    else
      drop(queue, id)
    end
  end
  return 1
end)
