-- Puts the staged messages of one queue into its lists, in their order and to run before what stands there. Safe to repeat.
-- KEYS[1]   hash: delivery tag -> bucket, newline, message
-- KEYS[2]   zset: delivery tag by its place in the pop order
-- KEYS[i]   the lists of the queue, one a bucket
-- ARGV[i]   the number of that bucket
local SLICE = 1000

local staged = redis.call('ZRANGE', KEYS[2], 0, -1)
local lists, places = {}, {}
for i = 3, #KEYS do
  lists[ARGV[i]] = KEYS[i]
end
for place, tag in ipairs(staged) do
  places[tag] = place
end

local function tag_of(text)
  local fine, message = pcall(cjson.decode, text)
  if fine and type(message) == 'table' and type(message.properties) == 'table' then
    return message.properties.delivery_tag
  end
end

local function push(list, texts)
  for first = 1, #texts, SLICE do
    redis.call('RPUSH', list, unpack(texts, first, math.min(first + SLICE - 1, #texts)))
  end
end

-- What an earlier run left of the same messages goes. A list that is empty, as in every first run, costs nothing here.
for i = 3, #KEYS do
  local rest, all = {}, redis.call('LRANGE', KEYS[i], 0, -1)
  for _, text in ipairs(all) do
    local tag = tag_of(text)
    if not (tag and places[tostring(tag)]) then
      rest[#rest + 1] = text
    end
  end
  if #rest < #all then
    redis.call('DEL', KEYS[i])
    push(KEYS[i], rest)
  end
end

-- Lists are popped from their tail, so what runs first is pushed last.
local texts = {}
for place = #staged, 1, -1 do
  local step, text = string.match(redis.call('HGET', KEYS[1], staged[place]) or '', '^([^\n]*)\n(.*)$')
  if step and lists[step] then
    texts[step] = texts[step] or {}
    table.insert(texts[step], text)
  end
end
for step, those in pairs(texts) do
  push(lists[step], those)
end
redis.call('DEL', KEYS[1], KEYS[2])
