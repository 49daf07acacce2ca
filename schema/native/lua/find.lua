-- Finds the jobs of one task that wait or are scheduled, a chunk at a time. Changes nothing.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   'waiting' or 'scheduled'
-- ARGV[3]   task id
-- ARGV[4]   most jobs to look at
-- ARGV[5]   how many have been looked at, from the end: jobs leave at the front, so the end stays comparable between chunks
-- Result    {1 if there is more, {id…}}

local key = ARGV[2] == 'scheduled' and SCHEDULED or WAITING
local task, limit, seen = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

-- Whether a message's head names the task. Most don't even contain its text, and need no parsing.
local function is_for_task(message)
  local head = string.match(message, '^[^\n]*')
  if not string.find(head, task, 1, true) then
    return false
  end
  local fine, found = pcall(cjson.decode, head)
  return fine and type(found) == 'table' and type(found.headers) == 'table' and found.headers.id == task
end

return answer(function()
  open()
  local ids = call('ZRANGE', key, -seen - limit, -seen - 1)
  local found = {}
  for _, id in ipairs(ids) do
    local message = attempt('HGET', JOB .. id, 'message')
    if message and is_for_task(message) then
      append(found, id)
    end
  end
  return {#ids == limit and 1 or 0, found}
end)
