-- Counts a queue's jobs. Changes nothing.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- Result    {1 if the queue exists, waiting, scheduled, held, dead, done, consumers with a lease, routes, ms for which the first
--           waiting job has waited or -1, next due ms or -1, blocked}

return answer(function()
  local now = clock()
  open()
  local held = 0
  for _, consumer in ipairs(call('ZRANGE', CONSUMERS, 0, -1)) do
    held = held + call('ZCARD', HELD .. consumer)
  end
  local age = -1
  local first = call('ZRANGE', WAITING, 0, 0)[1]
  if first then
    local published = tonumber(attempt('HGET', JOB .. first, 'published_at') or nil)
    age = published and math.max(0, now - published) or -1
  end
  return {
    queue.schema and 1 or 0,
    call('ZCARD', WAITING),
    call('ZCARD', SCHEDULED),
    held,
    call('ZCARD', DEAD),
    call('ZCARD', DONE),
    call('ZCOUNT', CONSUMERS, '(' .. now, '+inf'),
    queue.routes or '0',
    age,
    tonumber(call('ZRANGE', SCHEDULED, 0, 0, 'WITHSCORES')[2]) or -1,
    call('SCARD', BLOCKED),
  }
end)
