-- Steering: what an operator does to a job that nobody holds. What scripts about it begin with, after the others.

-- Action -> the roles of the places from which it can be done.
local STEERED = {
  promote = {scheduled = true},
  reprioritise = {waiting = true, scheduled = true, blocked = true},
  edit = {waiting = true, scheduled = true, blocked = true},
  requeue = {dead = true},
  move = {waiting = true, scheduled = true, dead = true},
  cancel = {waiting = true, scheduled = true, blocked = true},
  delete = {waiting = true, scheduled = true, blocked = true, dead = true, done = true},
}

-- Where the JSON value ends that begins there: a text, a number or a word.
local function end_of_value(json, first)
  if string.sub(json, first, first) ~= '"' then
    return (string.find(json, '[,%]}%s]', first) or #json + 1) - 1
  end
  local at = string.find(json, '["\\]', first + 1)
  while at and string.sub(json, at, at) == '\\' do
    at = string.find(json, '["\\]', at + 2)
  end
  return at or #json
end

-- The head that was decoded last: several look at the same.
local last_head, last_found

local function decoded(head)
  if head ~= last_head then
    local fine, found = decode_json(head)
    last_head, last_found = head, fine and type(found) == 'table' and found or nil
  end
  return last_found
end

-- An object in a head, by the names on the way to it; an empty one where there is none.
local function object_in(head, ...)
  local found = decoded(head)
  for _, name in ipairs({...}) do
    found = found and found[name]
    found = type(found) == 'table' and found
  end
  return found or {}
end

local function headers_of(head)
  return object_in(head, 'headers')
end

-- Where a name of an object begins, from a place on, and where what follows it up to its value ends. Plain text is found much faster
-- than a pattern.
local function find_name(json, name, from)
  local quoted = '"' .. name .. '"'
  local first, last = string.find(json, quoted, from, true)
  while first do
    local _, colon = string.find(json, '^%s*:%s*', last + 1)
    if colon then
      return first, colon
    end
    first, last = string.find(json, quoted, last + 1, true)
  end
end

-- A message's head in which a value of an object in it, a text or a number, is another JSON value. Nothing else changes: cjson would
-- not give back what it has read. `was` is the object as it was read, the names after the value are the way to it. The name may stand
-- elsewhere too, in a header of a header, so the result is looked at, but where it can only be the one that was read.
local function with_value(head, was, name, value, ...)
  if was[name] == nil or type(was[name]) == 'table' then
    return head
  end
  local first, last = find_name(head, name, 1)
  if not first then
    return head
  end
  local is_only = not find_name(head, name, last + 1) and not string.find(head, '\\u', 1, true)
  if is_only and string.sub(head, first - 1, first - 1) ~= '\\' then
    return string.sub(head, 1, last) .. value .. string.sub(head, end_of_value(head, last + 1) + 1)
  end
  local wanted = cjson.decode('[' .. value .. ']')[1]
  if was[name] == wanted then
    return head
  end
  while first do
    local changed = string.sub(head, 1, last) .. value .. string.sub(head, end_of_value(head, last + 1) + 1)
    if object_in(changed, ...)[name] == wanted then
      return changed
    end
    first, last = find_name(head, name, last + 1)
  end
  return head
end

-- The same for a header; `headers` as they were read.
local function with_header(head, headers, name, value)
  return with_value(head, headers, name, value, 'headers')
end

-- The message that was read last, and whose it is: the filter and the action look at the same.
local last_id, last_message

local function note_message(id, message)
  last_id, last_message = id, message
  return message
end

local function read_message(id)
  return id == last_id and last_message or note_message(id, attempt('HGET', JOB .. id, 'message') or nil)
end

-- Head and body of a job's message; nothing for a job without one.
local function message_parts(id)
  local message = read_message(id)
  local head_end = message and string.find(message, '\n', 1, true)
  if head_end then
    return string.sub(message, 1, head_end - 1), string.sub(message, head_end + 1)
  end
end

-- What an edited payload must be for a message to stay deliverable. Returns the head that fits it.
local function edited_head(id, head, kind, argsrepr, kwargsrepr)
  local found = decoded(head)
  if not found then
    refuse('refused', 'job ' .. id .. ' has a head that is no JSON; it can only be deleted')
  end
  local content, encoding = found['content-type'], found['content-encoding']
  local is_json = content == 'application/json'
  local is_plain = content == 'text/plain' or content == 'application/data' or content == nil or content == cjson.null
  local is_utf8 = not encoding or encoding == cjson.null or encoding == 'utf-8' or encoding == 'us-ascii' or encoding == 'binary'
  if not (is_json or is_plain) or not is_utf8 then
    refuse('refused', 'job ' .. id .. ' is ' .. tostring(content) .. ', and only JSON and plain texts can be edited')
  end
  if is_json and kind == 'other' then
    refuse('refused', 'job ' .. id .. ' is JSON, and the new payload is not: write it as JSON, texts in double quotes')
  end
  local headers = type(found.headers) == 'table' and found.headers or {}
  if is_json and type(headers.task) == 'string' and kind ~= 'task' then
    refuse('refused', 'job ' .. id .. ' is a Celery task, whose payload is [args, kwargs, options]: a list, an object, an object')
  end
  head = with_header(head, headers, 'compression', 'null')
  if kind == 'task' then
    head = with_header(with_header(head, headers, 'argsrepr', argsrepr), headers, 'kwargsrepr', kwargsrepr)
  end
  return head
end

local function edit(id, role, payload, kind, argsrepr, kwargsrepr)
  local head = message_parts(id)
  local name, value = 'payload', payload
  if head then
    name, value = 'message', edited_head(id, head, kind, argsrepr, kwargsrepr) .. '\n' .. payload
  elseif not attempt('HGET', JOB .. id, 'payload') then
    return 'refused'
  elseif kind == 'other' then
    refuse('refused', 'job ' .. id .. ' is JSON, and the new payload is not: write it as JSON, texts in double quotes')
  end
  if role == 'waiting' then
    account({id}, -1)
  end
  call('HSET', JOB .. id, name, value)
  note_message(nil, nil)
  if role == 'waiting' then
    account({id}, 1)
  end
  return 'done'
end

local function reprioritise(id, role, priority)
  local old = role == 'waiting' and tonumber(call('ZSCORE', WAITING, id)) or waiting_score_of(id)
  local sequence = math.abs(old) <= 2 ^ 53 and old % RANK_STEP or 0
  local score = rank(tonumber(priority)) * RANK_STEP + sequence
  if score == old then
    return 'same'
  end
  if role ~= 'waiting' then
    call('HSET', JOB .. id, 'score', score)
    return 'done'
  end
  account({id}, -1)
  call('ZADD', WAITING, score, id)
  account({id}, 1)
  return 'done'
end

-- A scheduled job waits from now on. A Celery worker would wait for the eta in its head all the same.
local function run_now(now, id)
  local head, body = message_parts(id)
  local without = head and with_header(head, headers_of(head), 'eta', 'null')
  if without ~= head then
    call('HSET', JOB .. id, 'message', without .. '\n' .. body)
  end
  call('ZADD', WAITING, waiting_score_of(id), id)
  account({id}, 1)
  renew_arrivals({id})
  attempt('HSET', JOB .. id, 'due_at', now)
  call('ZREM', SCHEDULED, id)
  return 'done'
end

-- Puts a job on the way to another queue, which is in another cluster slot: a client brings it there (moves.lua, receive.lua,
-- moved.lua), this one or any later one. Until then it stands in dead, where nobody takes it.
local function send_away(now, id, role, place, target)
  if not has_message(id) then
    return 'refused'
  end
  add_to_outgoing(MOVES, now, id)
  if role == 'dead' then
    call('HSET', JOB .. id, 'moved_to', target, 'moved_from', role)
    call('ZREM', OUTBOX, id)
    call('ZREM', UNREPORTED, id)
    return 'done'
  end
  if role == 'waiting' then
    account({id}, -1)
  end
  local field = role == 'waiting' and 'score' or 'due_at'
  call('ZADD', DEAD, now, id)
  call('HSET', JOB .. id, field, call('ZSCORE', place, id), 'moved_to', target, 'moved_from', role,
    'reason', 'moved', 'error', 'on the way to queue ' .. target)
  if queue.unique then
    release_unique(id)
  end
  renew_arrivals({id})
  call('ZREM', place, id)
  return 'done'
end

local function remove_steered(id, role, place)
  if place then
    remove_from(place, id)
  elseif not remove_blocked(id) then
    return 'more'
  end
  count('removed', 1)
  return 'done'
end

-- Does an action to a job that stands in a place, of a role from which it can be done. Returns 'done', 'refused', 'same' where it is as
-- it is to be, or 'more'.
local function steer(now, action, id, role, place, ...)
  if role == 'dead' and is_moving(id) then
    return 'refused'
  elseif action == 'promote' then
    return run_now(now, id)
  elseif action == 'move' then
    return send_away(now, id, role, place, ...)
  elseif action == 'reprioritise' then
    return reprioritise(id, role, ...)
  elseif action == 'edit' then
    return edit(id, role, ...)
  elseif action ~= 'requeue' then
    return remove_steered(id, role, place)
  elseif not has_message(id) or not has_room_for(id) then
    return 'refused'
  end
  revive(id)
  count('revived', 1)
  return 'done'
end
