-- Puts the staged messages of one queue into its lists, in their order and to run before what stands there. Safe to repeat.
-- KEYS[1]   hash: delivery tag -> bucket, newline, message
-- KEYS[2]   zset: delivery tag by its place in the pop order
-- KEYS[i]   the lists of the queue, one a bucket
-- ARGV[i]   the number of that bucket
local SLICE = 1000

local tags = redis.call('ZRANGE', KEYS[2], 0, -1)
local staged, known, texts = {}, {}, {} -- staged tags; staged texts; for each bucket its texts, what runs last first
for place = #tags, 1, -1 do
  local step, text = string.match(redis.call('HGET', KEYS[1], tags[place]) or '', '^([^\n]*)\n(.*)$')
  if step then
    staged[tags[place]], known[text] = true, true
    texts[step] = texts[step] or {}
    table.insert(texts[step], text)
  end
end

-- The tag of a message; nil also for one that cjson can't read, which is then known by its text alone.
local function tag_of(text)
  local fine, message = pcall(cjson.decode, text)
  if fine and type(message) == 'table' and type(message.properties) == 'table' then
    return tostring(message.properties.delivery_tag)
  end
end

local function push(list, those)
  for first = 1, #those, SLICE do
    redis.call('RPUSH', list, unpack(those, first, math.min(first + SLICE - 1, #those)))
  end
end

for i = 3, #KEYS do
  -- What an earlier run left of the same messages goes. In a first run the list is empty, and this costs nothing.
  local rest, all = {}, redis.call('LRANGE', KEYS[i], 0, -1)
  for _, text in ipairs(all) do
    if not (known[text] or staged[tag_of(text)]) then
      rest[#rest + 1] = text
    end
  end
  if #rest < #all then
    redis.call('DEL', KEYS[i])
    push(KEYS[i], rest)
  end
  -- Lists are popped from their tail.
  push(KEYS[i], texts[ARGV[i]] or {})
end
redis.call('DEL', KEYS[1], KEYS[2])
