-- Moving at once: what steer_matching.lua does with the jobs of a queue that go to another one, where one server has both. Between
-- nodes of a cluster they go through a client (send_away in _steering.lua, then moves.lua, receive.lua, moved.lua); so do those that
-- this is not for: jobs with a dedup key, with fields that no script knows or without a message, and those that go to a queue with
-- limits or one that is temporary.

-- What a job has in another queue of what it had here, and what is left of that if it begins anew.
local KEPT = {'message', 'payload', 'name', 'published_at', 'due_at', 'expires_at', 'deliveries', 'delivered_at'}
local KEPT_OF_DEAD = {'message', 'payload', 'name', 'published_at'}

-- Makes another queue the one that all names in scripts are about. `keys` as in _queue.lua; `settings`: its own, as it was found.
local function switch_to(keys, settings)
  META, WAITING, SCHEDULED, CONSUMERS, DEAD, DONE, WAKE, BLOCKED, OUTBOX = unpack(keys, 1, 9)
  JOB, HELD, NEEDS, UNBLOCKS, UNIQUE = unpack(keys, 10, 14)
  local base = string.sub(META, 1, -5)
  MOVES, LETTERS, UNREPORTED = base .. 'moves', base .. 'letters', base .. 'unreported'
  TIMES, HISTORY = base .. 'times', base .. 'history'
  queue = settings
end

-- Does something in the queue to move to.
local function in_target(target, act, ...)
  switch_to(target.keys, target.settings)
  local result = act(...)
  switch_to(target.from, target.left)
  return result
end

-- The queue whose keys stand behind those of the first; nil if it is not for jobs to be brought there at once.
local function open_target(now, name, source, name_json)
  if not KEYS[28] then
    return nil
  end
  local target = {
    name = name, source = source, name_json = name_json,
    keys = {unpack(KEYS, 15, 28)}, settings = {}, from = {unpack(KEYS, 1, 14)}, left = queue,
    jobs = {}, number = 0,
  }
  return in_target(target, function()
    open_queue()
    if not queue.schema or queue.expires or queue.renewing or queue.max_length or queue.max_bytes then
      return nil
    end
    sample(now)
    return target
  end)
end

-- The message as one of the other queue: a Celery task that is retried goes there. One that came by an exchange is as it was.
local function readdressed(target, message)
  local head_end = string.find(message, '\n', 1, true)
  local head = head_end and string.sub(message, 1, head_end - 1)
  local info = head and object_in(head, 'properties', 'delivery_info')
  if not info or info.exchange ~= '' or info.routing_key ~= target.source then
    return message
  end
  return with_value(head, info, 'routing_key', target.name_json, 'properties', 'delivery_info') .. string.sub(message, head_end)
end

-- Notes a job that was read, with so many fields, as one of those that bring() takes to the other queue. False: it is not for that.
local function take_along(target, id, role, score, found, number)
  if not (found.message or found.payload) or found.unique or call('HLEN', JOB .. id) ~= number then
    return false
  end
  local rank_here = math.floor(sound_score(role == 'waiting' and score or tonumber(found.score)) / RANK_STEP)
  if role == 'scheduled' then
    found.due_at = string.format('%.0f', score)
  end
  local hash = {}
  for _, name in ipairs(role == 'dead' and KEPT_OF_DEAD or KEPT) do
    if found[name] then
      append(hash, name, name == 'message' and readdressed(target, found.message) or found[name])
    end
  end
  append(target.jobs, {
    id = id, hash = hash, due = role == 'scheduled' and score or nil,
    priority = queue.priority_order == 'descending' and -1 - rank_here or rank_here,
  })
  return true
end

-- Of jobs, those of whose ids the queue has none; and the ids of the others. An exchange gives the same message to several queues,
-- under one id.
local function without_twins(jobs)
  local keys = {}
  for i, job in ipairs(jobs) do
    keys[i] = JOB .. job.id
  end
  if call('EXISTS', unpack(keys)) == 0 then
    return jobs, {}
  end
  local fresh, twins = {}, {}
  for _, job in ipairs(jobs) do
    if call('EXISTS', JOB .. job.id) == 0 then
      append(fresh, job)
    else
      append(twins, job.id)
    end
  end
  return fresh, twins
end

-- Brings the jobs that were noted to the other queue. Returns how many of them are only on the way.
local function bring(now, target, role, place)
  local twins, ids = {}, {}
  if #target.jobs == 0 then
    return 0
  end
  in_target(target, function()
    local fresh
    fresh, twins = without_twins(target.jobs)
    if #fresh > 0 then
      store(fresh)
    end
    for i, job in ipairs(fresh) do
      ids[i] = job.id
    end
  end)
  if role == 'waiting' then
    account(ids, -1)
  elseif role == 'dead' then
    account_dead(ids, -1)
  end
  delete_jobs(ids)
  if role == 'dead' then
    remove_dead(ids)
  else
    in_slices('ZREM', place, ids)
  end
  for _, id in ipairs(twins) do
    send_away(now, id, role, place, target.name)
  end
  target.jobs, target.number = {}, target.number + #ids
  return #twins
end

-- The end of what is done in the other queue, if anything was.
local function leave_target(now, target)
  count('moved', target.number)
  if target.number > 0 then
    in_target(target, finish, now)
  end
end
