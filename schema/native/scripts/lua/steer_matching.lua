-- Does an operator's action to the jobs of a place that match a filter: one bounded step of it.
--
-- KEYS      the queue's, see _queue.lua
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
--           each job that was cancelled}}
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

-- Whether a job's message is for the task, and its payload contains the text.
local function contents_match(id)
  local found = call('HMGET', JOB .. id, 'message', 'name', 'payload')
  if not found[1] then
    return (not task or found[2] == task) and (not text or string.find(found[3] or '', text, 1, true) ~= nil)
  end
  local head_end = string.find(found[1], '\n', 1, true) or #found[1] + 1
  if text and not string.find(found[1], text, head_end + 1, true) then
    return false
  end
  if not task then
    return true
  end
  local head = string.sub(found[1], 1, head_end - 1)
  return string.find(head, task_json, 1, true) ~= nil and headers_of(head).task == task
end

-- Whether a job is meant; nil if it is too large to tell here.
local function matches(id, now, began, score)
  local found = attempt('HMGET', JOB .. id, 'published_at', 'reason', 'error', 'moved_to') or {}
  local since = has_ended and score or tonumber(found[1] or nil)
  if (since or 0) > began or (role == 'dead' and found[4]) or (role == 'dead' and (found[2] == 'cancelled') ~= (state == 'cancelled')) then
    return false
  end
  if (oldest and not (since and now - since >= oldest)) or (youngest and not (since and now - since < youngest)) then
    return false
  end
  if reason and found[2] ~= reason and not string.find(found[3] or '', reason, 1, true) then
    return false
  end
  local reads = text or task or action == 'edit' or action == 'promote' or tells_removed
  local size = reads and size_of(id) or 0
  if size > MOST_BYTES then
    return nil
  end
  bytes = bytes + size
  return not (text or task) or contents_match(id)
end

local looked, done, left, unread, removed = 0, 0, 0, {}, {}

-- Looks at a job, and does to it what is to be done. Returns whether it stays where it is.
local function visit(id, now, began, score)
  looked = looked + 1
  local is_meant = matches(id, now, began, score)
  if is_meant == nil then
    append(unread, id)
    return true
  end
  if not is_meant then
    return true
  end
  local message = tells_removed and attempt('HGET', JOB .. id, 'message') or ''
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
        return ''
      end
      if score ~= last then
        last, skip = score, 0
      end
      if visit(id, now, began, tonumber(score)) then
        skip = skip + 1
      end
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
  local next
  if role == 'blocked' then
    next = through_set(now, began, last or '0', started)
  else
    next = through_zset(now, began, last or '-inf', tonumber(skip or '') or 0, started)
  end
  finish(now)
  return {looked, done, left, next, unread, removed}
end)
