-- What a client of bee may do to a job that nobody runs: cancel it. And what bee does by itself when a job is due, done before.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue
-- ARGV[4]   id
-- ARGV[5]   promote or cancel
-- Result    'done'; 'missing', 'held' or 'refused', and nothing has changed
--
-- bee cancels the children of a job with it: one of which somebody runs a child is held as well.

local queue, id, action = ARGV[3], ARGV[4], ARGV[5]

local WAITS = {new = true, queued = true, retried = true}

local function has_running(of, seen)
  for _, child in ipairs(attempt('SMEMBERS', BEE .. 's:' .. of .. ':children') or {}) do
    local found = attempt('HMGET', record_of(child), 'jid', 'status')
    if found and found[1] and not seen[child] then
      seen[child] = true
      if found[2] == 'running' or has_running(child, seen) then
        return true
      end
    end
  end
  return false
end

return reply_of(function()
  local now = clock()
  first_write()
  local found = attempt('HMGET', record_of(id), 'jid', 'queue', 'status', 'options')
  if not (found and found[1]) or found[2] ~= queue then
    return 'missing'
  end
  local status = found[3]
  if status == 'running' then
    return 'held'
  end
  if not WAITS[status] then
    return 'refused'
  end
  if action == 'promote' then
    if status == 'queued' or not call('ZSCORE', set_of('delayed', queue), id) then
      return 'refused'
    end
    call('ZREM', set_of('delayed', queue), id)
    enqueue(now, queue, id, options_of(found[4]))
  else
    if has_running(id, {[id] = true}) then
      return 'held'
    end
    cancel(now, id, {})
  end
  return 'done'
end)
