-- Does an operator's action to the jobs of a place that match a filter: one bounded step of it.
--
-- KEYS      the queue's, see _queue.lua; of a move also those of the queue to move to, where one server has both
-- ARGV[1]   now
-- ARGV[2]   action, see _steering.lua
-- ARGV[3]   state: waiting, scheduled, failed, cancelled, completed or blocked
-- ARGV[4]   where to go on, '' to begin
-- ARGV[5]   most jobs to look at
-- ARGV[6]   most microseconds to look at more
-- ARGV[7]   '1' to change nothing
-- ARGV[8]   task, '' any
-- ARGV[9]   the task as a JSON text
-- ARGV[10]  ms that it is old at least, '' any
-- ARGV[11]  ms that it is not as old as, '' any
-- ARGV[12]  what its payload contains, '' any
-- ARGV[13]  the reason for which it died, or what its error contains, '' any
-- ARGV[14…] what the action needs, as in steer.lua; of a cancel '1' to have what it removes
-- Result    {looked at, done, left, where to go on or '', {ids of jobs that are too large to be looked into here}, {id and message of
--           each job that was cancelled}, how many of those that are done are on the way to another queue}
--
-- Where it goes on: the moment at which it began, then for a zset the last score and how many jobs of that score were looked at and are
-- still there, for a set its cursor. What has come since it began is left out: else a job that is requeued and dies again would come by
-- again and again.

local KEY_OF = {waiting = WAITING, scheduled = SCHEDULED, failed = DEAD, cancelled = DEAD, completed = DONE}
local ROLES = {failed = 'dead', cancelled = 'dead', completed = 'done'}

-- Jobs that are fetched and looked at before the clock is looked at again.
local CHUNK = 10

-- A message of more bytes is not read here, and no more are read in one step.
local MOST_BYTES = 64 * 1024
local MOST_BYTES_PER_STEP = 256 * 1024

local action, state, limit, patience = ARGV[2], ARGV[3], tonumber(ARGV[5]), tonumber(ARGV[6])
local is_dry = ARGV[7] == '1'
local task, task_json = ARGV[8] ~= '' and ARGV[8], ARGV[9]
local oldest, youngest = tonumber(ARGV[10]), tonumber(ARGV[11])
local text, reason = ARGV[12] ~= '' and ARGV[12], ARGV[13] ~= '' and ARGV[13]
local role, place = ROLES[state] or state, KEY_OF[state]
local has_ended = role == 'dead' or role == 'done'
local tells_removed = action == 'cancel' and ARGV[14] == '1'

-- What of a job is read: where no message is wanted, where one is, and where it may be brought to another queue: if that is all it has.
local TERMS = {'published_at', 'reason', 'error', 'moved_to'}
local CONTENTS = {'published_at', 'reason', 'error', 'moved_to', 'message', 'payload', 'name'}
local KNOWN = {
  'published_at', 'reason', 'error', 'moved_to', 'message', 'payload', 'name', 'due_at', 'expires_at', 'deliveries', 'delivered_at',
  'score', 'consumer', 'last_consumer', 'unique',
}

local bytes = 0

-- Microseconds since some moment. Inside a script of a newer server TIME stands still; older ones have no os.clock.
local function microseconds()
  local has_clock, seconds = pcall(function() return os.clock() end)
  if has_clock then
    return seconds * 1000000
  end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The queue to move to as this script found it, if it can bring jobs there itself (_moving.lua).
local target

-- Whether the filter looks into messages, whether anything does, and whether nothing else can leave a job out.
local searches = text or task
local reads = searches or action == 'edit' or action == 'promote' or tells_removed
local is_wide = not (oldest or youngest or reason)

local function read(id, names)
  local values = attempt('HMGET', JOB .. id, unpack(names)) or {}
  local found, number = {}, 0
  for i, name in ipairs(names) do
    if values[i] then
      found[name], number = values[i], number + 1
    end
  end
  return found, number
end

-- Whether a job's message is for the task, and its payload contains the text.
local function contents_match(found)
  if not found.message then
    return (not task or found.name == task) and (not text or string.find(found.payload or '', text, 1, true) ~= nil)
  end
  local head_end = string.find(found.message, '\n', 1, true) or #found.message + 1
  if text and not string.find(found.message, text, head_end + 1, true) then
    return false
  end
  if not task then
    return true
  end
  local head = string.sub(found.message, 1, head_end - 1)
  return string.find(head, task_json, 1, true) ~= nil and headers_of(head).task == task
end

-- Whether a job is meant by what stands beside its message.
local function terms_match(found, now, began, score)
  local since = has_ended and score or tonumber(found.published_at)
  if (since or 0) > began then
    return false
  end
  if role == 'dead' and (found.moved_to or (found.reason == 'cancelled') ~= (state == 'cancelled')) then
    return false
  end
  if (oldest and not (since and now - since >= oldest)) or (youngest and not (since and now - since < youngest)) then
    return false
  end
  return not reason or found.reason == reason or string.find(found.error or '', reason, 1, true) ~= nil
end

-- Whether a job is meant; nil if it is too large to tell here. And what was read of it, and how many fields that are.
local function matches(id, now, began, score)
  local wants = reads or target
  local contents = target and KNOWN or CONTENTS
  local size = wants and is_wide and size_of(id)
  local has_contents = size and size <= MOST_BYTES
  local found, number = read(id, has_contents and contents or TERMS)
  if not terms_match(found, now, began, score) then
    return false
  end
  if wants and not has_contents then
    size = size or size_of(id)
    if size > MOST_BYTES then
      return not reads or nil, found, number
    end
    found, number = read(id, contents)
  end
  if wants then
    bytes = bytes + size
    note_message(id, found.message)
  end
  return not searches or contents_match(found), found, number
end

local looked, done, left, moving, unread, removed = 0, 0, 0, 0, {}, {}

-- Looks at a job, and does to it what is to be done. Returns whether it stays where it is.
local function visit(id, now, began, score)
  looked = looked + 1
  local is_meant, found, number = matches(id, now, began, score)
  if is_meant == nil then
    append(unread, id)
    return true
  end
  if not is_meant then
    return true
  end
  if target and take_along(target, id, role, score, found, number) then
    done = done + 1
    return false
  end
  local message = tells_removed and read_message(id) or ''
  local outcome = is_dry and 'done' or steer(now, action, id, role, place, unpack(ARGV, 14))
  if outcome == 'more' then
    append(unread, id)
  elseif outcome == 'refused' then
    left = left + 1
  elseif outcome == 'done' then
    done = done + 1
    if tells_removed and not is_dry then
      append(removed, id, message)
    end
    if action == 'move' and not is_dry then
      moving = moving + 1
    end
    return is_dry or action == 'edit' or (action == 'reprioritise' and role ~= 'waiting')
  end
  return true
end

local function is_over(started)
  return looked >= limit or bytes > MOST_BYTES_PER_STEP or microseconds() - started > patience
end

-- Goes through a zset. Returns where to go on.
local function through_zset(now, began, last, skip, started)
  repeat
    local from = (last ~= '-inf' and call('ZCOUNT', place, '-inf', '(' .. last) or 0) + skip
    local items = call('ZRANGE', place, from, from + math.min(CHUNK, limit - looked) - 1, 'WITHSCORES')
    if #items == 0 then
      return ''
    end
    for i = 1, #items, 2 do
      local id, score = items[i], items[i + 1]
      if has_ended and tonumber(score) > began then
        moving = moving + (target and bring(now, target, role, place) or 0)
        return ''
      end
      if score ~= last then
        last, skip = score, 0
      end
      if visit(id, now, began, tonumber(score)) then
        skip = skip + 1
      end
    end
    if target then
      moving = moving + bring(now, target, role, place)
    end
  until is_over(started)
  return string.format('%.0f %s %.0f', began, last, skip)
end

local function through_set(now, began, cursor, started)
  repeat
    local found = call('SSCAN', BLOCKED, cursor, 'COUNT', CHUNK)
    cursor = found[1]
    for _, id in ipairs(found[2]) do
      visit(id, now, began)
    end
  until cursor == '0' or is_over(started)
  return cursor ~= '0' and string.format('%.0f %s', began, cursor) or ''
end

return reply_of(function()
  local now, started = clock(), microseconds()
  open_queue()
  if action ~= 'edit' then
    first_write()
    sample(now)
  end
  local began, last, skip = string.match(ARGV[4], '^(%d+) (%S+) ?(%d*)$')
  began = tonumber(began) or now
  if role == 'waiting' or role == 'scheduled' then
    promote(now, CHUNK)
  end
  if action == 'move' and not is_dry then
    target = open_target(now, ARGV[14], ARGV[15], ARGV[16])
  end
  local next
  if role == 'blocked' then
    next = through_set(now, began, last or '0', started)
  else
    next = through_zset(now, began, last or '-inf', tonumber(skip or '') or 0, started)
  end
  if target then
    leave_target(now, target)
  end
  make_room_for(now, action == 'requeue' and not is_dry and done or 0)
  finish(now)
  return {looked, done, left, next, unread, removed, moving}
end)
