-- Extends the locks of jobs that a worker runs in a queue: of all, or of some.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue
-- ARGV[4]   worker
-- ARGV[5]   lease, ms from now: locks last for the queue's heartbeat, and so long at least
-- ARGV[6…]  pairs of id and data, JSON, '' that which it has; none: all that it runs
-- Result    {the moment to which the locks last, as text, ids of the jobs that are held}

local queue, worker, lease = ARGV[3], ARGV[4], tonumber(ARGV[5])

return reply_of(function()
  local now = seconds()
  first_write()
  local expires = now + math.max(heartbeat_of(queue), lease / 1000)
  local ids, data = {}, {}
  if #ARGV < 6 then
    lease_to(queue, worker, in_ms(now) + lease)
    ids = running_jobs(queue, worker, MAX_PER_CALL)
  end
  for i = 6, #ARGV, 2 do
    if held_by_worker(queue, worker, ARGV[i]) then
      append(ids, ARGV[i])
      data[ARGV[i]] = ARGV[i + 1] ~= '' and ARGV[i + 1] or nil
    end
  end
  for _, id in ipairs(ids) do
    call('ZADD', locks_of(queue), expires, id)
    call('HMSET', RECORD .. id, 'expires', expires, 'worker', worker)
    if data[id] then
      call('HSET', RECORD .. id, 'data', cjson.encode(cjson.decode(data[id])))
    end
    call('ZADD', jobs_of(worker), expires, id)
  end
  -- A worker whose lease had lapsed while its locks were lost is struck off the list (timers.lua): it is back.
  if #ids > 0 and (core(queue) == 'final' or not call('ZSCORE', QL .. 'workers', worker)) then
    call('ZADD', QL .. 'workers', now, worker)
  end
  return {string.format('%.17g', expires), ids}
end)
