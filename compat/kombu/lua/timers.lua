-- What somebody must do every second, for all queues: gives back what lapsed consumers had and what anybody has had for longer than
-- the visibility timeout, keeps what live consumers of ours have from that, and sweeps the binding tables of queues that have
-- expired, as kombu 5.7 does.
--
-- KEYS, ARGV[1…6]   see _common.lua
-- ARGV[7]   how often a message whose consumer lapsed is given back at once, '' for ever
-- Result    1 if there is more to do, 0 if not

-- Binding tables swept by one call.
local TABLES = 100

-- Deletes binding tables that no consumer of their expiring queues has refreshed in time, unless queues that last are bound there.
local function sweep_bindings(now)
  local deadlines = PREFIX .. '_kombu.binding_deadlines'
  for _, exchange in ipairs(call('ZRANGEBYSCORE', deadlines, '-inf', now, 'LIMIT', 0, TABLES)) do
    if call('EXISTS', PREFIX .. '_kombu.binding_permanent.' .. exchange) == 0 then
      call('DEL', PREFIX .. '_kombu.binding.' .. exchange)
    end
    call('ZREM', deadlines, exchange)
  end
end

return reply_of(function()
  local now, seconds = clock(), moment()
  first_write()
  local count = 0
  for _, queue in ipairs(served_queues()) do
    if count < MAX_PER_CALL then
      count = count + reclaim_lapsed(queue, now, MAX_PER_CALL - count, tonumber(ARGV[7]))
    end
  end
  refresh_live(now, seconds, seconds - VISIBILITY / 4000)
  if count < MAX_PER_CALL then
    count = count + restore_overdue(now, seconds, MAX_PER_CALL - count)
  end
  sweep_bindings(now)
  return count >= MAX_PER_CALL and 1 or 0
end)
