-- A job has failed.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]  queue
-- ARGV[4]  worker
-- ARGV[5]  id
-- ARGV[6]  group
-- ARGV[7]  message
-- ARGV[8]  data, JSON, '' that which it has
-- Result   'failed', or 'lost': the worker did not run it in this queue any more

local queue, worker, id, group, message, data = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]

return reply_of(function()
  local now = seconds()
  first_write()
  local held = held_by_worker(queue, worker, id, 'throttles')
  if not held then
    return 'lost'
  end
  publish('log', {jid = id, event = 'failed', worker = worker, group = group, message = message})
  publish_if_tracked('failed', id)
  log_event(now, queue, id, 'failed', {worker = worker, group = group})
  add_to_counter(now, queue, 'failures', 1)
  add_to_counter(now, queue, 'failed', 1)
  if data ~= '' then
    call('HSET', RECORD .. id, 'data', cjson.encode(cjson.decode(data)))
  end
  local failure = {group = group, message = message, when = math.floor(now), worker = worker}
  call('HMSET', RECORD .. id, 'state', 'failed', 'worker', '', 'expires', '', 'failure', cjson.encode(failure))
  list_as_failed(group, id)
  call('ZREM', jobs_of(worker), id)
  out_of(queue, id, 'work', 'locks', 'scheduled')
  if held[1] then
    release_throttles(now, id, held[1])
  end
  return 'failed'
end)
