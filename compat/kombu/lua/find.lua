-- Finds the messages of some tasks that wait in a queue, a chunk at a time, from those that run last: what has been looked at stays
-- comparable between chunks. Changes nothing.
--
-- KEYS, ARGV[1…6]   see _common.lua
-- ARGV[7]    queue
-- ARGV[8]    'waiting', or 'scheduled': nothing is, what has an `eta` waits as well
-- ARGV[9]    most messages to scan; fewer if they are large
-- ARGV[10]   how many have been scanned
-- ARGV[11]   what the id of a task begins with that is no more than a job: every message here has an id of its own
-- ARGV[12…]  task ids: the header `id` of a message, else its correlation id
-- Result     {1 if there is more, how many were scanned, {delivery tag, task id, '' …}}

local queue, limit, seen = ARGV[7], tonumber(ARGV[9]), tonumber(ARGV[10])

-- Bytes of messages that one call looks at, messages read at once, and the most ids that are looked for before parsing.
local MOST_BYTES, PAGE, FEW = 4194304, 50, 20

local wanted = set_from(12)

local function may_be_wanted(text)
  if #ARGV - 11 > FEW then
    return true
  end
  for task in pairs(wanted) do
    if string.find(text, task, 1, true) then
      return true
    end
  end
  return false
end

-- The delivery tag of a message and the id of its task, if that is one of those wanted.
local function task_in(text)
  if not may_be_wanted(text) then
    return nil
  end
  local message, tag = message_in(text)
  local id = message and (headers_of(message).id or message.properties.correlation_id)
  return wanted[id] and tag, id
end

return reply_of(function()
  if ARGV[8] == 'scheduled' then
    return {0, 0, {}}
  end
  local steps = steps_of()
  local found, scanned, bytes, before = {}, 0, 0, 0
  for i = #steps, 1, -1 do
    local key = bucket(queue, steps[i])
    local length = call('LLEN', key)
    local at = math.max(0, seen + scanned - before)
    while at < length do
      local texts = call('LRANGE', key, at, at + PAGE - 1)
      for _, text in ipairs(texts) do
        if scanned >= limit or bytes > MOST_BYTES then
          return {1, scanned, found}
        end
        scanned, bytes, at = scanned + 1, bytes + #text, at + 1
        local tag, id = task_in(text)
        if tag then
          append(found, tag, id)
          append(found, '')
        end
      end
    end
    before = before + length
  end
  return {0, scanned, found}
end)
