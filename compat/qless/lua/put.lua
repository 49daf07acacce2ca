-- Puts a job into a queue: a new one, or one that there is, wherever it stands, which then begins anew.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue
-- ARGV[4]   id
-- ARGV[5]   'move' a job that has this id already; 'beside': let one that is not over alone, and make the id another one;
--           'requeue': only a job that there is
-- ARGV[6]   who puts it, a worker's name, or ''
-- ARGV[7]   klass
-- ARGV[8]   data, JSON
-- ARGV[9]   delay, seconds
-- ARGV[10]  priority, '' that which it has, or 0
-- ARGV[11]  tags, JSON, '' those which it has
-- ARGV[12]  retries, '' those which it has, or 5
-- ARGV[13]  ids of jobs it waits for, JSON, '' none
-- ARGV[14]  throttles, JSON, '' those which it has; reqless only
-- ARGV[15]  publication, '' none
-- ARGV[16]  what Celery knows of it, JSON, '' none
-- Result    its id; {'missing'}: nothing to requeue; {'both'}: this core takes no delay together with dependencies
--
-- Everything is checked before the first write, which qless does not: there a bad tag leaves a job half put.

local queue, id, mode, me, klass, data, delay = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], tonumber(ARGV[9])

-- Takes a job out of all places where it stands.
local function leave(now, old)
  local state, was_in, worker, failure = old.state, old.queue, old.worker, old.failure
  if was_in then
    out_of(was_in, id, 'work', 'locks', 'depends', 'scheduled')
    if is_reqless(queue) then
      out_of(was_in, id, 'throttled')
    end
  end
  if worker and worker ~= '' then
    call('ZREM', jobs_of(worker), id)
    if worker ~= me or core(queue) == 'unified' then
      publish_lost_lock(id, worker)
    end
  end
  if state == 'complete' then
    call('ZREM', QL .. 'completed', id)
  end
  if state == 'failed' then
    no_longer_failed(id, failure, queue)
  end
end

-- An id that no job has.
local function free_id(wanted)
  for i = 2, 1000 do
    if call('EXISTS', RECORD .. wanted .. '-' .. i) == 0 then
      return wanted .. '-' .. i
    end
  end
  error('no id is free beside ' .. wanted)
end

-- Where a job of this id stands; empty if there is none.
local function known_job()
  local names = {'state', 'queue', 'worker', 'failure', 'tags', 'priority', 'retries', 'throttles'}
  local values = call('HMGET', RECORD .. id, 'jid', unpack(names))
  local old = {exists = values[1] and true}
  for i, name in ipairs(names) do
    old[name] = values[1] and values[i + 1] or nil
  end
  return old
end

return reply_of(function()
  local now = seconds()
  local made = published_as(ARGV[15])
  if made then
    return made
  end
  local old = known_job()
  if mode == 'requeue' and not old.exists then
    return {'missing'}
  end
  if mode == 'beside' and old.exists and old.state ~= 'complete' and old.state ~= 'failed' then
    id = free_id(id)
    old = {}
  end
  local priority = tonumber(ARGV[10] ~= '' and ARGV[10] or old.priority) or 0
  local retries = tonumber(ARGV[12] ~= '' and ARGV[12] or old.retries) or 5
  local tags = table_in(ARGV[11] ~= '' and ARGV[11] or old.tags)
  local throttles
  if is_reqless(queue) then
    throttles = throttles_in(ARGV[14] ~= '' and ARGV[14] or old.throttles)
    append(throttles, own_throttle(queue))
  end
  local depends = ARGV[13] ~= '' and table_in(ARGV[13]) or {}
  if delay > 0 and #depends > 0 and core(queue) == 'unified' then
    return {'both'}
  end

  if old.exists then
    remove_tags(queue, id, old.tags)
    if #depends > 0 then
      local kept = {}
      for _, other in ipairs(depends) do
        kept[other] = true
      end
      for _, other in ipairs(call('SMEMBERS', RECORD .. id .. '-dependencies')) do
        if not kept[other] then
          call('SREM', RECORD .. other .. '-dependents', id)
          call('SREM', RECORD .. id .. '-dependencies', other)
        end
      end
    end
  end
  publish('log', {jid = id, event = 'put', queue = queue})
  log_event(now, queue, id, 'put', {q = queue})
  leave(now, old)
  for _, tag in ipairs(tags) do
    add_tag(now, tag, id)
  end
  local fields = {
    'jid', id, 'klass', klass, 'data', data, 'priority', priority, 'tags', json_list(tags),
    'state', delay > 0 and 'scheduled' or 'waiting', 'worker', '', 'expires', 0, 'queue', queue,
    'retries', retries, 'remaining', retries, 'time', string.format('%.20f', now),
  }
  if throttles then
    append(fields, 'throttles', json_list(throttles))
  end
  if ARGV[16] ~= '' then
    append(fields, 'ferryman', ARGV[16])
  end
  call('HMSET', RECORD .. id, unpack(fields))
  wait_for(id, open_ones(depends))
  local knows_both = core(queue) ~= 'unified'
  if (delay <= 0 or knows_both) and call('SCARD', RECORD .. id .. '-dependencies') > 0 then
    call('ZADD', zset(queue, 'depends'), now, id)
    call('HSET', RECORD .. id, 'state', 'depends')
    if delay > 0 then
      call('HSET', RECORD .. id, 'scheduled', now + delay)
    end
  elseif delay > 0 then
    call('ZADD', zset(queue, 'scheduled'), now + delay, id)
  else
    local full = throttles and full_one(throttles)
    if full then
      throttle_job(now, queue, full, id)
    else
      into_work(now, queue, priority, id)
    end
  end
  register_queue(now, queue)
  publish_if_tracked('put', id)
  remember(ARGV[15], id)
  return id
end)
