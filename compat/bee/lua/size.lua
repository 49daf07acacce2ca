-- Counts a queue's jobs.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue
-- Result    {1, waiting, of these due, scheduled, held, blocked, dead, done, consumers, next due ms or '', now}

local queue = ARGV[3]

return reply_of(function()
  local now, delayed = clock(), set_of('delayed', queue)
  local due = call('ZCOUNT', delayed, 0, now)
  local running, ended = call('ZCARD', set_of('locks', queue)), call('ZCARD', set_of('expires', queue))
  return {
    1, call('ZCARD', set_of('queue', queue)) + due, due, call('ZCARD', delayed) - due, running, 0, 0, ended,
    call('ZCOUNT', set_of('bees', queue), now - 2 * SHARING, now), call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or '', now,
  }
end)
