-- Stores one new job that may be taken at once, in a queue without limits: what nearly every publish is. A third of the work of
-- publish.lua, to which it leaves everything else, before it has written anything.
--
-- KEYS      meta, waiting and wake of the queue (_queue.lua), the hash of the job, and what this producer's last publish stored
--           (publish.lua)
-- ARGV[1]   now
-- ARGV[2]   the version of the queue's routes that the producer relies on, '' if none
-- ARGV[3]   the id of the job
-- ARGV[4]   its number, higher than that of any job this producer has published before
-- ARGV[5]   its priority
-- ARGV[6]   its message
-- ARGV[7]   ms for which the number is remembered
-- Result    as that of publish.lua, or {'other'}: it is for publish.lua, and nothing was stored

local META, WAITING, WAKE, JOB, PUBLISHER = unpack(KEYS)

return reply_of(function()
  local found = call('HMGET', META, 'schema', 'routes', 'priority_order',
    'expires', 'ttl', 'max_length', 'max_bytes', 'max_priority', 'dead_letter_exchange', 'paused', 'next_sample')
  if found[1] ~= '1' or found[4] or found[5] or found[6] or found[7] or found[8] or found[9] then
    return {'other'}
  end
  local now = clock()
  if found[11] and now >= tonumber(found[11]) then -- a slot of the history is to be closed (_history.lua)
    return {'other'}
  end
  local routes, number, priority = found[2] or '0', tonumber(ARGV[4]), tonumber(ARGV[5])
  if ARGV[2] ~= '' and ARGV[2] ~= routes then
    return {'stale', routes}
  end
  local highest = string.match(call('GET', PUBLISHER) or '', '(%d+)$')
  if highest and number <= tonumber(highest) or call('EXISTS', JOB) == 1 then
    return {'other'}
  end
  local sequence = call('HINCRBY', META, 'sequence', 1)
  local rank = found[3] == 'descending' and -1 - priority or priority
  call('HSET', JOB, 'message', ARGV[6], 'published_at', now)
  call('ZADD', WAITING, rank * 2 ^ 45 + sequence, ARGV[3])
  call('HINCRBY', META, 'published', 1)
  call('SET', PUBLISHER, ARGV[4] .. '-' .. ARGV[4], 'PX', ARGV[7])
  if not found[10] and call('EXISTS', WAKE) == 0 then
    call('RPUSH', WAKE, '1')
  end
  return {'stored', routes, {1}, 0, 0, 0}
end)
