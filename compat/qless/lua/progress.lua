-- Notes in a job's history how far it is. qless has no other place for that. The last note goes when another one comes.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]  queue
-- ARGV[4]  worker
-- ARGV[5]  id
-- ARGV[6]  how far, JSON, an object
-- Result   1; 0 if the worker does not run it in this queue any more

local queue, worker, id = ARGV[3], ARGV[4], ARGV[5]

return reply_of(function()
  local now = seconds()
  first_write()
  if not held_by_worker(queue, worker, id) then
    return 0
  end
  local key = RECORD .. id .. '-history'
  local last = call('LINDEX', key, -1)
  local about = cjson.decode(ARGV[6])
  if last and table_in(last)[2] == 'progress' then
    call('LSET', key, -1, cjson.encode({math.floor(now), 'progress', about}))
  else
    log_event(now, queue, id, 'progress', about)
  end
  return 1
end)
