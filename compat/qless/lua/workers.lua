-- Who has popped jobs of late, and how many each runs; forgets those that have not for long, as qless does when asked.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- Result   for each worker, the last one first, {name, how many jobs it runs, how many of its locks have ended}

-- Most of those that are forgotten at a time.
local MOST = 1000

return reply_of(function()
  local now = seconds()
  local key, rows = QL .. 'workers', {}
  for _, worker in ipairs(call('ZRANGEBYSCORE', key, '-inf', now - setting('max-worker-age', DAY), 'LIMIT', 0, MOST)) do
    call('DEL', jobs_of(worker))
    call('ZREM', key, worker)
  end
  for _, worker in ipairs(call('ZREVRANGE', key, 0, -1)) do
    append(rows, {worker, call('ZCOUNT', jobs_of(worker), now, '+inf'), call('ZCOUNT', jobs_of(worker), '-inf', now)})
  end
  return rows
end)
