-- Gives a worker up to n jobs of a queue, in the order of their runs, and locks them; first looks after lost locks, makes the jobs
-- that recurring ones are due for, and promotes what is due.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue
-- ARGV[4]   worker
-- ARGV[5]   n; 0 only does what is due
-- ARGV[6]   lease, ms from now: locks last for the queue's heartbeat, and so long at least
-- ARGV[7]   how often a job of a lost worker is given out again: qless's retries decide that
-- ARGV[8]   bytes of data that the reply may have; one job comes at any rate
-- ARGV[9]   '1' if the worker knows only the tasks that follow
-- ARGV[10…] names of tasks
-- Result    {now ms, next event ms, {some tasks that it does not know …}, {id, {field, value, …} as it runs now} …}
--
-- A job has the name that its field `ferryman` tells as `task`, else its klass, or else the queue's. Others stay where they are. Of a
-- job without a record nothing is left to run, so it leaves the queue. A job without data can't be run by anybody: it fails.

local queue, worker, n, lease, space = ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[8])
local WORK, LOCKS = zset(queue, 'work'), locks_of(queue)

local tasks, knows_all = set_from(10), ARGV[9] ~= '1'
if not knows_all and #ARGV < 10 then
  n = 0 -- it knows none
end

-- So many jobs are looked at at once where not all are wanted.
local SLICE_OF_WORK = 100

-- Where the last call of this worker has stopped looking, because none of so many was for it. Kept for a few polls only.
local SEEK = SIDE .. 'seek:' .. queue .. ':' .. worker
local SEEK_MS = 10000

local used = 0

local function wants(id)
  if knows_all then
    return true
  end
  local klass, extra = fields_of(id, 'klass', 'ferryman')
  local task = celery_word(extra, 'task') or klass and klass ~= '' and klass or queue
  if not tasks[task] then
    note_unknown(task)
  end
  return tasks[task]
end

-- How many jobs may run besides, where the queue of qless has a limit.
local function places(now)
  local most = not is_reqless(queue) and setting(queue .. '-max-concurrency', 0) or 0
  local running = most > 0 and call('ZCOUNT', LOCKS, now, '+inf') or 0
  return math.min(n, MAX_PER_CALL, most > 0 and most - running or n)
end

-- Jobs of work that can be run, `room` at most, and whether there may be others. So many are tried in each round; one whose throttle is
-- full waits for that from now on.
local function select_jobs(now, room)
  local chosen, away, looked = {}, {}, 0
  local from = knows_all and 0 or tonumber(call('GET', SEEK) or nil) or 0
  local more, at_end = false, false
  local function visit(id)
    local data, throttles = fields_of(id, 'data', 'throttles')
    if data == nil then
      if attempt('TYPE', RECORD .. id).ok == 'none' then
        append(away, id)
      end
      return 0
    elseif not wants(id) then
      return 0
    elseif not data then
      fail_unrun(now, queue, id, queue .. '-damaged', 'The job has no data')
      append(away, id)
      return 0
    end
    local names = throttles and throttles_in(throttles) or {}
    local full = full_one(names)
    if full then
      throttle_job(now, queue, full, id)
      append(away, id)
      more = true
    elseif #chosen > 0 and used + #data > space then
      more = true
      return nil
    else
      used = used + #data
      take_slots(names, id)
      append(chosen, id)
      append(away, id)
    end
    return 1
  end
  for _ = 1, is_reqless(queue) and setting_of(queue, 'max-pop-retry', 1) or 1 do
    local tries = room - #chosen
    while tries > 0 and not at_end and looked < MAX_PER_CALL do
      local ids = call('ZREVRANGE', WORK, from, from + (knows_all and tries or SLICE_OF_WORK) - 1)
      at_end = #ids == 0
      if at_end then
        break
      end
      for _, id in ipairs(ids) do
        if tries > 0 then
          local tried = visit(id)
          if not tried then
            return chosen, away, true
          end
          looked, from, tries = looked + 1, from + 1, tries - tried
        end
      end
    end
  end
  if not knows_all and not at_end and #chosen == 0 and looked >= MAX_PER_CALL then
    call('SET', SEEK, from, 'PX', SEEK_MS)
    more = true
  elseif not knows_all then
    call('DEL', SEEK)
  end
  return chosen, away, more or looked >= MAX_PER_CALL
end

-- A worker begins a job.
local function lock(now, id)
  local time = fields_of(id, 'time')
  log_event(now, queue, id, 'popped', {worker = worker})
  measure('wait', now, queue, now - (tonumber(time or nil) or now))
  local expires = now + math.max(heartbeat_of(queue), lease / 1000)
  call('ZADD', LOCKS, expires, id)
  call('HMSET', RECORD .. id, 'time', string.format('%.20f', now), 'worker', worker, 'expires', expires, 'state', 'running')
  call('ZADD', jobs_of(worker), expires, id)
  publish_if_tracked('popped', id)
end

-- When there may be something to take, or to look after, if nothing is put before.
local function next_event(now)
  local event = now + math.max(lease / 1000, 1)
  for _, index in ipairs({'locks', 'scheduled', 'recur'}) do
    local first = call('ZRANGE', zset(queue, index), 0, 0, 'WITHSCORES')[2]
    event = math.min(event, tonumber(first or nil) or event)
  end
  return event
end

return reply_of(function()
  local now = seconds()
  first_write()
  lease_to(queue, worker, in_ms(now) + lease)
  if call('SISMEMBER', QL .. 'paused_queues', queue) == 1 then
    return {in_ms(now), in_ms(now + 1), {}}
  end
  if n > 0 then
    call('ZADD', QL .. 'workers', now, worker)
  end
  local room, more, away = places(now), false, {}
  local chosen, ended = lose_locks(now, queue, knows_all and room or MAX_PER_CALL, room, wants)
  local spawned, promoted = 0, 0
  if room > #chosen and (not is_reqless(queue) or has_room(own_throttle(queue))) then
    spawned = spawn(now, queue, room - #chosen)
    promoted = promote(now, queue, room - #chosen)
    local selected
    selected, away, more = select_jobs(now, room - #chosen)
    for _, id in ipairs(selected) do
      append(chosen, id)
    end
  end
  local reply = {in_ms(now), 0, unknown}
  for _, id in ipairs(chosen) do
    lock(now, id)
    append(reply, {id, call('HGETALL', RECORD .. id)})
  end
  in_slices('ZREM', WORK, away)
  local is_more = more or #chosen > 0 and #chosen == room
  reply[2] = is_more and reply[1] or due_ms(next_event(now))
  return reply
end)
