-- Counts a queue's jobs.
--
-- KEYS[1]   root of the side keys
-- KEYS[2]   what bee's keys begin with
-- ARGV[1]   now
-- ARGV[2]   hive
-- ARGV[3]   queue
-- Result    {now, queued, delayed and due, delayed, running, ended, bees that live, first due time or ''}

local queue = ARGV[3]

return reply_of(function()
  local now, delayed = clock(), set_of('delayed', queue)
  local due = call('ZCOUNT', delayed, 0, now)
  return {
    now, call('ZCARD', set_of('queue', queue)), due, call('ZCARD', delayed) - due, call('ZCARD', set_of('locks', queue)),
    call('ZCARD', set_of('expires', queue)), call('ZCOUNT', set_of('bees', queue), now - 2 * SHARING, now),
    call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or ''
  }
end)
