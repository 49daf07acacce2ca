-- Gives jobs back that a worker holds in a queue, their attempts as before. They wait where they stood before, in the front of those
-- with their priority.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue
-- ARGV[4]   worker
-- ARGV[5]   'requeue' or 'some': these ids; 'all' that it holds; 'leave': all, and the worker leaves the queue; at most MAX_PER_CALL
--           of all
-- ARGV[6…]  ids
-- Result    for each job 1, or 0 if the worker did not run it in this queue any more

local queue, worker, which = ARGV[3], ARGV[4], ARGV[5]

local function release(now, id)
  local held = held_by_worker(queue, worker, id, 'priority', 'throttles')
  if not held then
    return 0
  end
  into_work(put_at(id) or now, queue, held[1], id)
  call('HMSET', RECORD .. id, 'state', 'waiting', 'worker', '', 'expires', 0)
  call('HDEL', RECORD .. id, 'grace')
  call('ZREM', locks_of(queue), id)
  call('ZREM', jobs_of(worker), id)
  if held[2] then
    release_throttles(now, id, held[2])
  end
  return 1
end

return reply_of(function()
  local now = seconds()
  first_write()
  local is_all = which == 'all' or which == 'leave'
  local ids, released = is_all and running_jobs(queue, worker, MAX_PER_CALL) or args_from(6), {}
  for _, id in ipairs(ids) do
    append(released, release(now, id))
  end
  if which == 'leave' and #ids < MAX_PER_CALL then
    end_lease(queue, worker)
    if call('EXISTS', jobs_of(worker)) == 0 then
      call('ZREM', QL .. 'workers', worker)
    end
  end
  return released
end)
