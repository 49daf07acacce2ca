-- Puts the staged messages of one queue into its lists, in their order and to run before what stands there. Safe to repeat, and to
-- be repeated while it replies 1: one call does a part of the work.
-- KEYS[1]   hash: delivery tag -> bucket, newline, message
-- KEYS[2]   zset: delivery tag by its place in the pop order; a tag leaves it when its message has been added to a new list
-- KEYS[i]   for each bucket of the queue: its list, and the new list that takes its place in the last call
-- ARGV[i]   the number of each bucket
-- Result    1 if there is more to do, 0 if not
--
-- Lists are popped from their tail. So a new list gets the staged messages from the last to run to the first, then at its head what
-- stands in the old one: consumers see what was staged when all of it is there.

-- Most messages, and bytes of them, for one call.
local LIMIT, BYTES, PAGE = 1000, 4 * 1024 * 1024, 100

-- A longer message is not parsed where the end of its text names another tag than those that are staged.
local LONG, TAIL = 65536, 4096
local TAG = '.*"delivery_tag": ?"([^"]*)"'

local staged, order = KEYS[1], KEYS[2]
local moved, bytes = 0, 0

-- Takes note of work; returns whether it is enough for this call.
local function spent(text)
  moved, bytes = moved + 1, bytes + #text
  return moved >= LIMIT or bytes > BYTES
end

-- Whether a message that stands in a list is one of those that are staged: an earlier run has left it.
local function is_staged(text)
  local named = #text > LONG and string.match(string.sub(text, -TAIL), TAG)
  if named and redis.call('HEXISTS', staged, named) == 0 then
    return false
  end
  local fine, message = pcall(cjson.decode, text)
  if fine and type(message) == 'table' and type(message.properties) == 'table' then
    return redis.call('HEXISTS', staged, tostring(message.properties.delivery_tag)) == 1
  end
  -- One that cjson can't read is known by its text alone.
  local found = redis.call('HGET', staged, named or string.match(text, TAG) or '')
  return found and string.match(found, '^[^\n]*\n(.*)$') == text
end

if redis.call('EXISTS', staged) == 0 then
  return 0
end

local new = {}
for i = 1, #ARGV do
  new[ARGV[i]] = KEYS[2 * i + 2]
end
local tags = redis.call('ZREVRANGE', order, 0, PAGE - 1)
while #tags > 0 do
  for _, tag in ipairs(tags) do
    local step, text = string.match(redis.call('HGET', staged, tag) or '', '^([^\n]*)\n(.*)$')
    if new[step] then
      redis.call('RPUSH', new[step], text)
    end
    redis.call('ZREM', order, tag)
    if spent(text or '') then
      return 1
    end
  end
  tags = redis.call('ZREVRANGE', order, 0, PAGE - 1)
end

for i = 3, #KEYS, 2 do
  local text = redis.call('LINDEX', KEYS[i], -1)
  while text do
    if not is_staged(text) then
      redis.call('LPUSH', KEYS[i + 1], text)
    end
    redis.call('RPOP', KEYS[i])
    if spent(text) then
      return 1
    end
    text = redis.call('LINDEX', KEYS[i], -1)
  end
end

for i = 3, #KEYS, 2 do
  if redis.call('EXISTS', KEYS[i + 1]) == 1 then
    redis.call('RENAME', KEYS[i + 1], KEYS[i])
  end
end
redis.call('UNLINK', staged, order)
return 0
