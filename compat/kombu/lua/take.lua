-- Gives a consumer up to n messages of a queue: the lowest bucket first, in each from the tail. First gives back what lapsed
-- consumers had, and what anybody has had for longer than the visibility timeout.
--
-- KEYS, ARGV[1…6]   see _common.lua
-- ARGV[7]    queue
-- ARGV[8]    consumer
-- ARGV[9]    n; 0 only gives back
-- ARGV[10]   lease, ms from now
-- ARGV[11]   how often a message whose consumer lapsed is given back at once, '' for ever
-- ARGV[12]   bytes of messages that the reply may have; one message comes whatever its size
-- ARGV[13]   '1' if only messages of the tasks are wanted
-- ARGV[14…]  tasks
-- Result     {now, next event ms, {some tasks that are not wanted …}, {delivery tag, message} …}
--
-- Pop and note are one: kombu's own consumers lose what they have popped and not yet noted. A message that went through an
-- exchange may stand in other queues too, with the same delivery tag, and whoever acks one copy would ack them all: here it gets a
-- tag of its own, and is noted as sent to this queue alone. So does one whose tag somebody has already.
--
-- What is no message, or of a task that is not wanted, stays. Where there is much of it the next take goes on behind it.

local queue, consumer = ARGV[7], ARGV[8]
local room, lease, space = math.min(tonumber(ARGV[9]), MAX_PER_CALL), tonumber(ARGV[10]), tonumber(ARGV[12])
local delivery_limit = tonumber(ARGV[11])
local CURSOR = SIDE .. 'cursor:' .. queue

-- Messages read at once, and bytes of them that one call looks at.
local PAGE, MOST_BYTES = 50, 16777216

-- How long a cursor is of use, ms.
local CURSOR_LIFE = 10000

-- Bytes of a body that are decoded to find the name of its task, where no header says it (protocol 1).
local MOST_BODY = 65536

local wanted = ARGV[13] == '1' and set_from(14)

local ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'

-- What base64 stands for.
local function decoded_base64(text)
  local value = {}
  for i = 1, #ALPHABET do
    value[string.sub(ALPHABET, i, i)] = i - 1
  end
  return (string.gsub(string.gsub(text, '[^%w+/]', ''), '(.)(.)(.?)(.?)', function(a, b, c, d)
    local bits = value[a] * 262144 + value[b] * 4096 + (value[c] or 0) * 64 + (value[d] or 0)
    local bytes = string.char(math.floor(bits / 65536), math.floor(bits / 256) % 256, bits % 256)
    return string.sub(bytes, 1, c == '' and 1 or d == '' and 2 or 3)
  end))
end

-- The task that a message is for; that of its queue's name where it names none.
local function task_of(message)
  local task = headers_of(message).task
  local body = message.body
  if type(task) ~= 'string' and type(body) == 'string' and #body <= MOST_BODY then
    local fine, found = decode_json(message.properties.body_encoding == 'base64' and decoded_base64(body) or body)
    task = fine and type(found) == 'table' and found.task
  end
  return type(task) == 'string' and task or queue
end

-- Whether a message is for the consumer.
local function wants(message)
  local task = not wanted or task_of(message)
  if not wanted or wanted[task] then
    return true
  end
  note_unknown(task)
  return false
end

-- A message with a tag that nobody has, and that tag.
local function with_own_tag(text, tag)
  local base = string.match(tag, '^(.*)~%d+$') or tag
  local number = 1
  while call('HEXISTS', UNACKED, base .. '~' .. number) == 1 do
    number = number + 1
  end
  tag = base .. '~' .. number
  return with_member(text, {'properties', 'delivery_tag'}, quoted(tag)), tag
end

-- Notes a message as the consumer's, and takes it from its list, where `skipped` messages are before it.
local function take(key, text, message, tag, skipped, seconds)
  local info, original = message.properties.delivery_info, text
  local is_copied = type(info.exchange) == 'string' and info.exchange ~= ''
  if is_copied or call('HEXISTS', UNACKED, tag) == 1 then
    text, tag = with_own_tag(text, tag)
  end
  call('HSET', UNACKED, tag, '[' .. text .. ', "", ' .. quoted(queue) .. ']')
  mark(queue, tag, seconds)
  hold(queue, consumer, tag)
  if skipped == 0 then
    call('RPOP', key)
  else
    call('LREM', key, -1, original)
  end
  return {tag, text}
end

-- Takes messages until there is no room, or there are none. Returns them, and whether there may be more behind what was left.
local function take_all(seconds)
  local taken, looked, used, read = {}, 0, 0, 0
  local at_step, at = string.match(call('GET', CURSOR) or '', '^(%S+) (%d+)$')
  for _, step in ipairs(steps_of()) do
    if not at_step or step == at_step then
      local key, skipped = bucket(queue, step), at_step and tonumber(at) or 0
      at_step = nil
      while #taken < room do
        local size = skipped > 0 and PAGE or math.min(PAGE, room - #taken)
        local texts = call('LRANGE', key, -skipped - size, -skipped - 1)
        if #texts == 0 then
          break
        end
        for i = #texts, 1, -1 do
          local text = texts[i]
          local message, tag = message_in(text)
          if #taken > 0 and used + #text > space then
            return taken, true
          end
          looked, read = looked + 1, read + #text
          if message and wants(message) then
            append(taken, take(key, text, message, tag, skipped, seconds + #taken / 1000000))
            used = used + #text
          else
            skipped = skipped + 1
          end
          if #taken == room then
            return taken, false
          end
          if looked >= MAX_PER_CALL or read > MOST_BYTES then
            call('SET', CURSOR, step .. ' ' .. skipped, 'PX', CURSOR_LIFE)
            return taken, true
          end
        end
      end
    end
  end
  call('DEL', CURSOR)
  return taken, false
end

-- When this consumer should take again, if nothing wakes it: never later than its lease, because another consumer that begins
-- meanwhile can lapse only after that.
local function next_event(now)
  return math.min(now + lease, other_lease_end(queue, consumer))
end

return reply_of(function()
  local now, seconds = clock(), moment()
  first_write()
  lease_to(queue, consumer, now + lease) -- first of all: it must not lapse itself in this call
  reclaim_lapsed(queue, now, MAX_PER_CALL, delivery_limit)
  restore_overdue(now, seconds, MAX_PER_CALL)
  local taken, more = {}, false
  if room > 0 then
    taken, more = take_all(seconds)
  end
  local reply = {now, more and now or next_event(now), unknown}
  for _, job in ipairs(taken) do
    append(reply, job)
  end
  return reply
end)
