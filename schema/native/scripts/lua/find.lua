-- Finds the jobs of some tasks that wait or are scheduled, a chunk at a time, from the end: jobs leave at the front, so what has been
-- looked at stays comparable between chunks. Changes nothing.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   'waiting' or 'scheduled'
-- ARGV[3]   most jobs to scan; fewer if their messages are large
-- ARGV[4]   how many have been scanned
-- ARGV[5…]  task ids
-- Result    {1 if there is more, how many were scanned, {id, task id, message or '' …}}; the task id is '' where the message is too
--           long to be read here, and the caller is to read it
--
-- A job without a message came from another system: its own id is its task's.

local key = ARGV[2] == 'scheduled' and SCHEDULED or WAITING
local limit, seen = tonumber(ARGV[3]), tonumber(ARGV[4])

-- So many texts are looked for in a head before it is parsed, which takes as long as to look for a few dozen.
local FEW = 20

local wanted = {}
for i = 5, #ARGV do
  wanted[ARGV[i]] = true
end

-- Whether a message may be for one of the tasks wanted. Of few, most don't even contain the text, and need no parsing.
local function may_be_wanted(head)
  if #ARGV - 4 > FEW then
    return true
  end
  for task in pairs(wanted) do
    if string.find(head, task, 1, true) then
      return true
    end
  end
  return false
end

-- The task that a message is for, if it is one of those wanted.
local function task_of(message)
  local head = string.match(message, '^[^\n]*')
  if not may_be_wanted(head) then
    return nil
  end
  local fine, found = decode_json(head)
  local headers = fine and type(found) == 'table' and found.headers
  return type(headers) == 'table' and wanted[headers.id] and headers.id
end

return reply_of(function()
  open_queue()
  local ids = call('ZRANGE', key, -seen - limit, -seen - 1)
  local found, scanned, bytes = {}, 0, 0
  while scanned < #ids and bytes <= MAX_READ_BYTES do
    local id = ids[#ids - scanned]
    local size = attempt('HSTRLEN', JOB .. id, 'message') or 0
    local is_long = size > MAX_READ_BYTES
    local message = not is_long and attempt('HGET', JOB .. id, 'message')
    scanned, bytes = scanned + 1, bytes + size
    local task
    if is_long then
      task = ''
    else
      task = message and task_of(message) or not message and wanted[id] and id
    end
    if task then
      append(found, id, task)
      append(found, message or '')
    end
  end
  return {(#ids == limit or scanned < #ids) and 1 or 0, scanned, found}
end)
