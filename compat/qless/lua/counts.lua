-- How many jobs some queues have in each state, as qless counts: it promotes what is due first.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3…]  queues; none: all
-- Result    for each queue {name, waiting, running, stalled, scheduled, depends, recurring, throttled, 1 if it is paused}

return reply_of(function()
  local now = seconds()
  local left = MAX_PER_CALL
  local names, rows = {unpack(ARGV, 3)}, {}
  if #names == 0 then
    names = call('ZRANGE', QL .. 'queues', 0, -1)
  end
  for _, queue in ipairs(names) do
    local function cards(index)
      return call('ZCARD', zset(queue, index))
    end
    left = left - promote(now, queue, left)
    local due = call('ZCOUNT', zset(queue, 'scheduled'), '-inf', now)
    local stalled = call('ZCOUNT', locks_of(queue), '-inf', now)
    append(rows, {
      queue, cards('work') + due, cards('locks') - stalled, stalled, cards('scheduled') - due, cards('depends'), cards('recur'),
      cards('throttled'), call('SISMEMBER', QL .. 'paused_queues', queue),
    })
  end
  return rows
end)
