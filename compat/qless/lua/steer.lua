-- What clients of qless do to a job that nobody runs: change its priority, put it anew, move it, cancel it.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]  queue
-- ARGV[4]  id
-- ARGV[5]  promote, reprioritise, edit, requeue, move, cancel or delete
-- ARGV[6]  the priority, the data, or the queue to move to
-- Result   'done'; 'missing', 'held' or 'refused', and nothing has changed
--
-- A job that others wait for is not cancelled: qless does not either. One that moves while it is scheduled stays so.

local queue, id, action, value = ARGV[3], ARGV[4], ARGV[5], ARGV[6]

-- Where a job may be for an action. Stalled ones wait.
local WAITS = {waiting = true, stalled = true, throttled = true, scheduled = true, depends = true}
local FITS = {
  promote = {scheduled = true}, reprioritise = WAITS, edit = WAITS, cancel = WAITS, requeue = {failed = true, complete = true},
  move = {waiting = true, stalled = true, throttled = true, scheduled = true},
  delete = {waiting = true, stalled = true, throttled = true, scheduled = true, depends = true, failed = true},
}

-- The queue into which the job was put last, by its history: records of complete jobs don't tell.
local function last_queue()
  local entries = attempt('LRANGE', RECORD .. id .. '-history', -100, -1) or {}
  for i = #entries, 1, -1 do
    local entry = table_in(entries[i])
    if entry[2] == 'put' and type(entry[3]) == 'table' then
      return entry[3].q
    end
  end
end

-- The state of a job, by the place where it stands: records of scheduled ones may say that they wait.
local function state_of()
  local state, was_in = fields_of(id, 'state', 'queue')
  if was_in ~= queue and not (state == 'complete' and was_in == '' and last_queue() == queue) then
    return nil
  end
  if state ~= 'running' and call('ZSCORE', zset(queue, 'scheduled'), id) then
    return 'scheduled'
  end
  return state
end

-- Puts the job into a queue anew, as `put` does with all that it is: due at once, or when it is.
local function put_anew(now, target, state)
  local worker, failure, priority, retries, stored = fields_of(id, 'worker', 'failure', 'priority', 'retries', 'throttles')
  publish('log', {jid = id, event = 'put', queue = target})
  log_event(now, target, id, 'put', {q = target})
  local due = state == 'scheduled' and call('ZSCORE', zset(queue, 'scheduled'), id)
  out_of(queue, id, 'work', 'locks', 'depends', 'scheduled')
  if worker and worker ~= '' then
    call('ZREM', jobs_of(worker), id)
  end
  if state == 'complete' then
    call('ZREM', QL .. 'completed', id)
  elseif state == 'failed' then
    no_longer_failed(id, failure, queue)
  end
  local fields = {
    'state', due and 'scheduled' or 'waiting', 'worker', '', 'expires', 0, 'queue', target, 'remaining', retries or 5,
    'time', string.format('%.20f', now),
  }
  local throttles
  if stored and is_reqless(queue) then
    out_of(queue, id, 'throttled')
    release_throttles(now, id, stored)
    throttles = {}
    for _, name in ipairs(throttles_in(stored)) do
      if name ~= own_throttle(queue) then
        append(throttles, name)
      end
    end
    append(throttles, own_throttle(target))
    append(fields, 'throttles', json_list(throttles))
  end
  call('HMSET', RECORD .. id, unpack(fields))
  local full = not due and throttles and full_one(throttles)
  if due then
    call('ZADD', zset(target, 'scheduled'), due, id)
  elseif full then
    throttle_job(now, target, full, id)
  else
    into_work(now, target, priority, id)
  end
  register_queue(now, target)
  publish_if_tracked('put', id)
end

return reply_of(function()
  local now = seconds()
  first_write()
  local state = state_of()
  if not state then
    return 'missing'
  end
  if state == 'running' then
    return 'held'
  end
  if not FITS[action][state] then
    return 'refused'
  end
  if action == 'promote' then
    call('ZREM', zset(queue, 'scheduled'), id)
    into_work(now, queue, fields_of(id, 'priority'), id)
    call('HSET', RECORD .. id, 'state', 'waiting')
  elseif action == 'reprioritise' then
    if call('ZSCORE', zset(queue, 'work'), id) then
      call('ZADD', zset(queue, 'work'), tonumber(value), id)
    end
    call('HSET', RECORD .. id, 'priority', tonumber(value))
  elseif action == 'edit' then
    call('HSET', RECORD .. id, 'data', value)
  elseif action == 'requeue' then
    put_anew(now, queue, state)
  elseif action == 'move' then
    if value == queue then
      return 'refused'
    end
    put_anew(now, value, state)
  else
    if #call('SMEMBERS', RECORD .. id .. '-dependents') > 0 then
      return 'refused'
    end
    cancel(now, id)
  end
  return 'done'
end)
