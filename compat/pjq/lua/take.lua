-- Gives a consumer up to n jobs, in order; first puts back what was dispatched and not accepted in time, and what lapsed consumers
-- of ours held, and forgets workers that are silent.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]   queue
-- ARGV[3]   consumer
-- ARGV[4]   n; 0 only does the rest
-- ARGV[5]   lease, ms from now
-- ARGV[6]   how often a job whose consumer was lost is given out again, '' without limit
-- ARGV[7]   bytes of payloads that the reply may have; one job comes at least
-- ARGV[8]   '1' if only jobs of some names are wanted
-- ARGV[9…]  those names
-- Result    {now ms, next event ms, {names of jobs that are not wanted, a few}, and for each job {id, the job as its worker is given
--           it, name or '', extra or '', attempts, lapses, 1 if it was dispatched before}}; the next event is now if there is more
--           to take
--
-- What is not wanted, is damaged, or is at work already stays in its place: the program's own workers may want it, and a job that was
-- added twice runs twice, but not at once. A call looks at MAX_PER_CALL ids; where it left off, the consumer's next call goes on.

-- Most jobs that one call gives, and bytes of payloads of jobs that are not wanted after which it looks no further: each is some ten
-- milliseconds.
local MOST, MOST_BYTES = 200, 4 * 1024 * 1024

local queue, consumer = ARGV[2], ARGV[3]
local room, lease_ms, space = math.min(tonumber(ARGV[4]), MOST), tonumber(ARGV[5]), tonumber(ARGV[7])
local limit = tonumber(ARGV[6]) or math.huge

local wanted = ARGV[8] == '1' and {}
-- Whether a payload that has none of the names in it can be left without parsing it: those are few, and need no escapes.
local is_plain = wanted and #ARGV < 40
for i = 9, #ARGV do
  wanted[ARGV[i]] = true
  is_plain = is_plain and string.find(ARGV[i], '^[%w_.%-]+$')
end
is_plain = is_plain and not wanted[queue]

-- Most jobs that are parsed for nothing but the name of one that is not wanted.
local PARSED = 50
local parsed = 0

-- Whether a job of this name is wanted; notes it if not.
local function is_wanted(name)
  if not wanted or wanted[name] then
    return true
  end
  note_unknown(name)
  return false
end

-- Bytes of payloads read of jobs that are not wanted.
local passed_bytes = 0

local FIELDS = {'json', 'dispatched_at', 'ferryman', ATTEMPTS, LAPSES}

-- Whether a payload may be that of a job that is wanted.
local function may_be_wanted(json)
  for name in pairs(wanted) do
    if string.find(json, name, 1, true) then
      return true
    end
  end
  parsed = parsed + 1
  return parsed <= PARSED
end

-- The hash of a job that this consumer may have; nil for all others.
local function read_job(id)
  local found = attempt('HMGET', record_of(id), unpack(FIELDS))
  passed_bytes = passed_bytes + (found and found[1] and #found[1] or 0)
  if is_plain and found and found[1] and not found[3] and not may_be_wanted(found[1]) then
    return nil
  end
  local object = found and found[1] and object_of(found[1])
  if not object then
    return nil
  end
  local extra = extra_of(found[3])
  local command = type(object.command) == 'string' and object.command
  if not is_wanted(name_of(extra, command, queue)) then
    return nil
  end
  return {
    id = id,
    json = found[1],
    name = command or '',
    extra = extra and found[3] or '',
    attempts = tonumber(found[4] or 0) or 0,
    lapses = tonumber(found[5] or 0) or 0,
    again = found[2] and 1 or 0,
  }
end

-- Looks at ids from the tail until `room` jobs are found. Returns them, and how many ids the next call may leave out.
local function select_jobs(skipped)
  local chosen, is_chosen, scanned, bytes = {}, {}, 0, 0
  while #chosen < room and scanned < MAX_PER_CALL do
    local chunk = math.min(math.max(2 * (room - #chosen), 20), MAX_PER_CALL - scanned)
    local from = skipped + scanned
    local ids = call('LRANGE', queued(queue), -from - chunk, -from - 1)
    for i = #ids, 1, -1 do
      local id = ids[i]
      if #chosen == room then
        return chosen, skipped > 0 and skipped + scanned - #chosen or 0
      elseif passed_bytes > MOST_BYTES then
        return chosen, skipped + scanned - #chosen
      end
      scanned = scanned + 1
      local job = not is_chosen[id] and not call('ZSCORE', dispatched(queue), id) and read_job(id)
      if job then
        bytes, passed_bytes = bytes + #job.json, passed_bytes - #job.json
        if #chosen > 0 and bytes > space then
          return chosen, skipped > 0 and skipped + scanned - 1 - #chosen or 0
        end
        is_chosen[id] = true
        append(chosen, job)
      end
    end
    if #ids < chunk then
      return chosen, 0
    end
  end
  return chosen, (#chosen < room or skipped > 0) and skipped + scanned - #chosen or 0
end

-- Gives a job to the consumer. False for one that the program has taken back from too many of ours: it has failed.
local function give_out(at, job)
  local holder = holder_of(queue, job.id)
  if holder then
    job.lapses = call('HINCRBY', record_of(job.id), LAPSES, 1)
  end
  if job.lapses > limit then
    fail_as_lost(queue, at, holder or consumer, job.id, job.lapses)
  else
    lease(queue, job.id, lease_score(at, lease_ms))
    hold(queue, consumer, job.id)
    job.dispatched_at = iso_text(at)
    call('HSET', record_of(job.id), 'dispatched_at', job.dispatched_at)
  end
  call('LREM', queued(queue), -1, job.id)
  return job.dispatched_at
end

-- When there may be something to do if nothing is added.
local function next_event(now)
  local event = math.min(now + lease_ms, other_lease_end(queue, consumer))
  local lease_end = call('ZRANGE', dispatched(queue), 0, 0, 'WITHSCORES')[2]
  if lease_end then
    event = math.min(event, math.floor(tonumber(lease_end) * 1000) + LEASE + 1)
  end
  return math.max(event, now + 1)
end

return reply_of(function()
  local at = moment()
  local now = milliseconds(at)
  first_write()
  lease_to(queue, consumer, now + lease_ms) -- first of all: it must not lapse itself in this call
  local more = tend(queue, at, limit)
  local skipped = tonumber(attempt('HGET', cursors(queue), consumer) or 0)
  local chosen, left_out = select_jobs(skipped)
  local taken = {}
  for i, job in ipairs(chosen) do
    -- Each a microsecond after the last: their order is that in which they go back.
    if give_out(later(at, i - 1), job) then
      local given = with_members(job.json, {'dispatched_at', quoted(job.dispatched_at)})
      append(taken, {job.id, given, job.name, job.extra, job.attempts, job.lapses, job.again})
    else
      more = true
    end
  end
  if left_out > 0 then
    call('HSET', cursors(queue), consumer, left_out)
    more = more or #chosen < room
  elseif skipped > 0 then
    call('HDEL', cursors(queue), consumer)
  end
  return {now, more and now or next_event(now), unknown, unpack(taken)}
end)
