-- What the transitions of kombu's keys share. Definitions only: a script gets those that it uses.
--
-- KEYS[1]   root of the side keys (compat/side.py); besides those there are
--             marks:<queue>   hash: delivery tag -> the score that its index entry got from us last
--             cursor:<queue>  string: bucket and place at which the next take goes on that found too much it must leave; seconds
-- KEYS[2]   what kombu's keys begin with: global_keyprefix
-- ARGV[1]   now
-- ARGV[2]   sep
-- ARGV[3]   priority_steps, ascending, as in 0,3,6,9
-- ARGV[4]   unacked_key
-- ARGV[5]   unacked_index_key
-- ARGV[6]   visibility_timeout, ms
--
-- Theory. A message that somebody has stands in the hash `unacked`, and in `unacked_index` with the time of its pop: there is no
-- word of who has it. Any of kombu's processes gives back what has stood there for longer than the visibility timeout. So what
-- one of ours has gets a new time again and again, and what it got is remembered as its mark. An index entry with another score
-- than its mark is not ours any more: it was given back, and somebody has taken it since.
--
-- Messages are never made anew by cjson, which rounds long numbers and makes {} of []: they are changed as text.

local PREFIX, SEP = KEYS[2], ARGV[2]
local UNACKED, INDEX = KEYS[2] .. ARGV[4], KEYS[2] .. ARGV[5]
local VISIBILITY = tonumber(ARGV[6])
local MARKS = KEYS[1] .. 'marks:'

-- The parts of a text between separators.
local function split(text, separator)
  local parts, from = {}, 1
  while true do
    local first, last = string.find(text, separator, from, true)
    append(parts, string.sub(text, from, (first or 0) - 1))
    if not first then
      return parts
    end
    from = last + 1
  end
end

-- This moment in seconds, as kombu writes it.
local function moment()
  if ARGV[1] ~= '' then
    return tonumber(ARGV[1]) / 1000
  end
  local time = redis.call('TIME')
  return time[1] + time[2] / 1000000
end

-- JSON text: where its parts are, and how one is changed. Only for text that cjson has accepted.

local ESCAPES = {['"'] = '\\"', ['\\'] = '\\\\', ['\n'] = '\\n', ['\r'] = '\\r', ['\t'] = '\\t', ['\f'] = '\\f', ['\b'] = '\\b'}

-- A control character as JSON has it.
local function control(char)
  return ESCAPES[char] or string.format('\\u%04x', string.byte(char))
end

-- A UTF-8 sequence as an escape, two for what needs surrogates.
local function escaped(char)
  local first = string.byte(char)
  local code = first - (first >= 240 and 240 or first >= 224 and 224 or 192)
  for i = 2, #char do
    code = code * 64 + string.byte(char, i) - 128
  end
  if code < 65536 then
    return string.format('\\u%04x', code)
  end
  code = code - 65536
  return string.format('\\u%04x\\u%04x', 55296 + math.floor(code / 1024), 56320 + code % 1024)
end

-- A text as a JSON string in ASCII.
local function quoted(text)
  return '"' .. string.gsub(string.gsub(text, '["\\%c]', control), '[\194-\244][\128-\191]+', escaped) .. '"'
end

-- The members of the JSON object that begins at a place, name -> {first, last} of the value, and where the object ends.
local function members(text, at)
  local found = {}
  at = string.find(text, '%S', at + 1)
  while string.sub(text, at, at) == '"' do
    local last = string_end(text, at)
    local name = string.sub(text, at + 1, last - 1)
    local first = string.find(text, '[^%s:]', last + 1)
    found[name] = {first, value_end(text, first)}
    at = string.find(text, '[^%s,]', found[name][2] + 1)
  end
  return found, at
end

-- The text with a member of an object set, where the names before the last lead to the object; as it is if there is no such object.
local function with_member(text, path, value)
  local at = string.find(text, '{', 1, true)
  for i = 1, #path - 1 do
    local place = members(text, at)[path[i]]
    if not place or string.sub(text, place[1], place[1]) ~= '{' then
      return text
    end
    at = place[1]
  end
  local found, close = members(text, at)
  local name = path[#path]
  local place = found[name]
  if place then
    return string.sub(text, 1, place[1] - 1) .. value .. string.sub(text, place[2] + 1)
  end
  local comma = next(found) and ', ' or ''
  return string.sub(text, 1, close - 1) .. comma .. '"' .. name .. '": ' .. value .. string.sub(text, close)
end

-- A delivery tag as text; nil for what can't be one.
local function tag_text(tag)
  if type(tag) == 'number' and tag % 1 == 0 and math.abs(tag) < 2 ^ 53 then
    return string.format('%.0f', tag)
  end
  return type(tag) == 'string' and tag ~= '' and tag or nil
end

-- A table, or nil for a JSON array and for everything else that is no object; an empty array passes.
local function object(value)
  return type(value) == 'table' and value[1] == nil and value or nil
end

-- The message in a text, parsed, and its delivery tag; nil for a text that no consumer can take. cjson lets control characters pass.
local function message_in(text)
  if string.find(text, '[%z\1-\8\11\12\14-\31]') then
    return nil
  end
  local fine, message = decode_json(text)
  message = fine and object(message)
  local properties = message and object(message.properties)
  local info = properties and object(properties.delivery_info)
  local tag = info and tag_text(properties.delivery_tag)
  local has_headers = tag and (message.headers == nil or message.headers == cjson.null or object(message.headers))
  if not has_headers then
    return nil
  end
  for _, name in ipairs({'exchange', 'routing_key'}) do
    if info[name] ~= cjson.null and type(info[name]) ~= 'string' then
      return nil
    end
  end
  if message.body ~= nil and message.body ~= cjson.null and type(message.body) ~= 'string' then
    return nil
  end
  return message, tag
end

-- The headers of a parsed message.
local function headers_of(message)
  return object(message.headers) or {}
end

-- Moments as Celery has them in headers.

-- A moment in ms as ISO 8601, UTC.
local function iso(ms)
  local fraction = ms % 1000 > 0 and string.format('.%03d000', ms % 1000) or ''
  return calendar(math.floor(ms / 1000)) .. fraction .. '+00:00'
end

-- Buckets and bindings

-- The buckets of every queue, as texts.
local function steps_of()
  return split(ARGV[3], ',')
end

-- The list of one bucket of a queue.
local function bucket(queue, step)
  return PREFIX .. queue .. (step == '0' and '' or SEP .. step)
end

-- The bucket of a priority, as kombu finds it: the largest step that is not above it, of what lies between 0 and 9.
local function step_of(priority)
  local number = 0
  if type(priority) == 'number' and priority == priority then
    number = priority < 0 and math.ceil(priority) or math.floor(priority)
  elseif type(priority) == 'string' and string.find(priority, '^%s*[+-]?%d+%s*$') then
    number = tonumber(priority)
  elseif priority == true then
    number = 1
  end
  number = math.max(math.min(number, 9), 0)
  local steps = steps_of()
  local found = steps[1]
  for _, step in ipairs(steps) do
    if tonumber(step) <= number then
      found = step
    end
  end
  return found
end

-- Whether a topic's pattern fits a routing key, as kombu's regular expressions do: * is one word, # one or more.
local function fits(pattern, key)
  local words = split(key, '.')
  local reachable = {[0] = true}
  for _, part in ipairs(split(pattern, '.')) do
    local reached, is_open = {}, false
    for i, word in ipairs(words) do
      is_open = is_open or reachable[i - 1]
      if part == '#' then
        reached[i] = is_open
      else
        reached[i] = reachable[i - 1] and (part == word or part == '*' and word ~= '')
      end
    end
    reachable = reached
  end
  return reachable[#words]
end

-- The queues to which an exchange leads, each once.
local function queues_of(exchange, routing_key)
  if exchange == '' then
    return routing_key ~= '' and {routing_key} or {}
  end
  local found, seen = {}, {}
  for _, member in ipairs(call('SMEMBERS', PREFIX .. '_kombu.binding.' .. exchange)) do
    local parts = split(member, SEP)
    local queue = #parts == 3 and parts[3] or ''
    local is_bound = parts[2] == '' and parts[1] == routing_key or parts[2] ~= '' and fits(parts[1], routing_key)
    if queue ~= '' and is_bound and not seen[queue] then
      seen[queue] = true
      append(found, queue)
    end
  end
  table.sort(found)
  return found
end

-- What is held

-- Gives an entry of the index a time, and remembers that it was us.
local function mark(queue, tag, seconds)
  local score = string.format('%.6f', seconds)
  call('ZADD', INDEX, score, tag)
  call('HSET', MARKS .. queue, tag, score)
end

-- Forgets that somebody of ours has a message.
local function unmark(queue, tag)
  let_go(queue, tag, true)
  call('HDEL', MARKS .. queue, tag)
end

-- Whether a message that one of ours has taken is still its own: nobody has ended it, given it back or taken it since.
local function is_marked(queue, tag)
  local score = call('ZSCORE', INDEX, tag)
  local known = call('HGET', MARKS .. queue, tag)
  return score and known and tonumber(score) == tonumber(known)
end

-- Whether a consumer has a message. What it has lost is forgotten.
local function owns(queue, consumer, tag)
  if not holds(queue, consumer, tag) then
    return false
  end
  if not is_marked(queue, tag) then
    unmark(queue, tag)
    return false
  end
  return true
end

-- The messages that a consumer has, those that it took first at the end.
local function owned_by(queue, consumer, limit)
  local tags, since = {}, {}
  for _, tag in ipairs(held_by(queue, consumer, limit)) do
    if owns(queue, consumer, tag) then
      append(tags, tag)
      since[tag] = tonumber(call('HGET', MARKS .. queue, tag))
    end
  end
  table.sort(tags, function(one, other)
    return since[one] > since[other] or since[one] == since[other] and one > other
  end)
  return tags
end

-- Ends a message that somebody has.
local function end_message(tag)
  call('ZREM', INDEX, tag)
  call('HDEL', UNACKED, tag)
end

-- A name in a delivery; '' for none.
local function name_or_none(value)
  return type(value) == 'string' and value or ''
end

-- The JSON text of the message that somebody has, its exchange and routing key, and the message parsed; nil for damage.
local function unacked(tag)
  local text = call('HGET', UNACKED, tag)
  local fine, delivery = decode_json(text or '')
  local at = fine and type(delivery) == 'table' and string.match(text, '^%s*%[%s*(){')
  if not at then
    return nil
  end
  text = string.sub(text, at, value_end(text, at))
  local message = message_in(text)
  if not message then
    return nil
  end
  return text, name_or_none(delivery[2]), name_or_none(delivery[3]), message
end

-- Puts a message that somebody has back into its queues. `command`: 'RPUSH' for it to run next, 'LPUSH' for it to run last.
-- `lapses`, if not nil, is noted in the message. What can't be put anywhere stays, and is looked at again after another
-- visibility timeout: kombu would drop it.
local function put_back(tag, command, lapses)
  local text, exchange, routing_key, message = unacked(tag)
  local queues = text and queues_of(exchange, routing_key) or {}
  if #queues == 0 then
    if call('HEXISTS', UNACKED, tag) == 1 then
      call('ZADD', INDEX, string.format('%.6f', moment()), tag)
    else
      call('ZREM', INDEX, tag)
    end
    return false
  end
  text = with_member(text, {'headers', 'redelivered'}, 'true')
  text = with_member(text, {'properties', 'delivery_info', 'redelivered'}, 'true')
  if lapses then
    text = with_member(text, {'headers', 'x-delivery-count'}, lapses)
  end
  for _, queue in ipairs(queues) do
    call(command, bucket(queue, step_of(message.properties.priority)), text)
  end
  end_message(tag)
  return true
end

-- How often a consumer of ours has died with a message.
local function lapses_of(message)
  return tonumber(headers_of(message)['x-delivery-count']) or 0
end

-- Gives back what lapsed consumers of a queue had, at most `limit` messages. What has lapsed too often stays where it is, until
-- the visibility timeout brings it back as it does what kombu's own workers had. Returns how many there were.
local function reclaim_lapsed(queue, now, limit, delivery_limit)
  local count = 0
  for _, consumer in ipairs(call('ZRANGEBYSCORE', SIDE .. 'consumers:' .. queue, '-inf', now, 'LIMIT', 0, limit)) do
    for _, tag in ipairs(owned_by(queue, consumer, limit - count)) do
      local _, _, _, message = unacked(tag)
      local lapses = message and lapses_of(message) + 1
      unmark(queue, tag)
      if not delivery_limit or not message or lapses <= delivery_limit then
        put_back(tag, 'RPUSH', delivery_limit and lapses)
      end
      count = count + 1
    end
    if count >= limit then
      break
    end
    end_lease(queue, consumer)
  end
  return count
end

-- Gives what live consumers of ours have new times where those are older than `older_than`, seconds.
local function refresh_live(now, seconds, older_than)
  for _, queue in ipairs(served_queues()) do
    local is_live = {}
    for _, consumer in ipairs(call('ZRANGEBYSCORE', SIDE .. 'consumers:' .. queue, '(' .. now, '+inf')) do
      is_live[consumer] = true
    end
    local held = call('HGETALL', SIDE .. 'held:' .. queue)
    for i = 1, #held, 2 do
      local known = is_live[held[i + 1]] and call('HGET', MARKS .. queue, held[i])
      if known and tonumber(known) < older_than and is_marked(queue, held[i]) then
        mark(queue, held[i], seconds + i / 2000000)
      end
    end
  end
end

-- What kombu does with what somebody has had for longer than the visibility timeout: it runs next, the oldest of it first. At most
-- `limit` messages; returns how many there were.
local function restore_overdue(now, seconds, limit)
  local overdue = string.format('%.6f', seconds - VISIBILITY / 1000)
  if #call('ZRANGEBYSCORE', INDEX, '-inf', overdue, 'LIMIT', 0, 1) == 0 then
    return 0
  end
  refresh_live(now, seconds, seconds - VISIBILITY / 4000)
  local tags = call('ZRANGEBYSCORE', INDEX, '-inf', overdue, 'LIMIT', 0, limit)
  for i = #tags, 1, -1 do
    put_back(tags[i], 'RPUSH')
  end
  return #tags
end
