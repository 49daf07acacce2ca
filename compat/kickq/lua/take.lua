-- Gives a consumer up to n jobs, in their order, and up to so many bytes of documents, but one job at least; first promotes what is
-- due and gives back what lapsed consumers held.
--
-- KEYS, and ARGV[1] to ARGV[3]: see _common.lua
-- ARGV[4]   queue
-- ARGV[5]   consumer
-- ARGV[6]   n; 0 only promotes and gives back
-- ARGV[7]   lease, ms from now
-- ARGV[8]   how often a job is given back of which the consumer has lapsed, '' without limit
-- ARGV[9]   bytes of documents that the reply may have
-- ARGV[10]   '1': only jobs of the tasks that follow
-- ARGV[11…]  tasks
-- Result    {now, next event ms, {task left for others, …}, {id, lapses, itemData, ferryman or ''} …}; the next event is now if there
--           is more to take
--
-- What no worker can run is left as kickq's own leaves it: out of the list, its record as it was. Jobs of other tasks stay where
-- they are. Where those are more than MAX_PER_CALL, a call also looks at a part of the list that changes every second.

local queue, consumer, lease, space = ARGV[4], ARGV[5], tonumber(ARGV[7]), tonumber(ARGV[9])
local room = math.min(tonumber(ARGV[6]), MAX_PER_CALL)
local LIST = QUEUE .. queue

-- Ids that one look at the list gets, at least.
local CHUNK = 20

local wanted = set_from(11)

-- Whether a job is for this consumer: its task is the one in what Celery knows of it, or else that of the queue. Notes the task if it
-- is not.
local function is_wanted(extra)
  if ARGV[10] ~= '1' then
    return true
  end
  local known = extra and parsed(extra)
  local task = type(known) == 'table' and known.task
  task = type(task) == 'string' and task or queue
  if not wanted[task] then
    note_unknown(task)
  end
  return wanted[task]
end

local chosen, gone, seen, used, is_full = {}, {}, {}, 0, false

local function consider(id)
  if seen[id] then
    return
  end
  seen[id] = true
  local found = attempt('HMGET', JOB .. id, 'ferryman', 'state')
  local extra = found and found[1]
  if found and (holder_of(queue, id) or not is_wanted(extra)) then
    return
  end
  local job, too_deep = open_job(id)
  if not job then
    append(gone, not too_deep and id or nil)
  elseif #chosen > 0 and used + #job.text > space then
    is_full = true
  else
    used = used + #job.text
    job.extra = extra
    append(chosen, job)
  end
end

-- Looks at the list from an index on, at MAX_PER_CALL ids at most.
local function look_from(first)
  local last = first + MAX_PER_CALL
  while first < last and #chosen < room and not is_full do
    local ids = call('LRANGE', LIST, first, math.min(first + math.max(room - #chosen, CHUNK), last) - 1)
    for _, id in ipairs(ids) do
      if #chosen == room or is_full then
        break
      end
      consider(id)
    end
    if #ids == 0 then
      break
    end
    first = first + #ids
  end
end

return reply_of(function()
  local now = clock()
  first_write()
  lease_to(queue, consumer, now + lease) -- first of all: it must not lapse itself in this call
  local more = promote(now)
  more = reclaim_lapsed(queue, now, MAX_PER_CALL, tonumber(ARGV[8]) or math.huge) == MAX_PER_CALL or more
  forget_lapses(queue)
  local hidden = false
  if room > 0 then
    look_from(0)
    local rest = call('LLEN', LIST) - MAX_PER_CALL
    if #chosen == 0 and rest > 0 then
      hidden = true
      look_from((1 + math.floor(now / 1000) % math.ceil(rest / MAX_PER_CALL)) * MAX_PER_CALL)
    end
  end
  local taken = {now, 0, unknown}
  for _, job in ipairs(chosen) do
    begin_run(queue, consumer, job, now)
    call('LREM', LIST, 1, job.id)
    append(taken, {job.id, call('HGET', SIDE .. 'lapses:' .. queue, job.id) or '0', job.text, job.extra or ''})
  end
  for _, id in ipairs(gone) do
    call('LREM', LIST, 1, id)
  end
  taken[2] = (more or is_full or #gone >= MAX_PER_CALL or #chosen == MAX_PER_CALL) and now
    or math.min(next_event(queue, consumer, now, lease), hidden and now + 1000 or math.huge)
  return taken
end)
