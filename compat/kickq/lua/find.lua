-- Finds the jobs of some tasks that nobody has taken yet, a chunk at a time, from the end: jobs leave at the front, so what has been
-- looked at stays comparable between chunks. Changes nothing.
--
-- KEYS, and ARGV[1] to ARGV[3]: see _common.lua
-- ARGV[4]   queue
-- ARGV[5]   'waiting' or 'scheduled'
-- ARGV[6]   most jobs to scan
-- ARGV[7]   how many have been scanned
-- ARGV[8]   what the task ids begin with of jobs that kickq's own producers made
-- ARGV[9…]  task ids
-- Result    {1 if there is more, how many were scanned, {id, task id, '' …}}

local queue, limit, seen = ARGV[4], math.min(tonumber(ARGV[6]), MAX_PER_CALL), tonumber(ARGV[7])
local is_scheduled = ARGV[5] == 'scheduled'
local wanted = set_from(9)

local function task_id_of(id, extra)
  local known = extra and parsed(extra)
  local task_id = type(known) == 'table' and known.id
  return type(task_id) == 'string' and task_id or ARGV[8] .. id
end

return reply_of(function()
  local ids
  if is_scheduled then
    ids = call('ZRANGE', SCHEDULED, -seen - limit, -seen - 1)
  else
    ids = call('LRANGE', QUEUE .. queue, -seen - limit, -seen - 1)
  end
  local found = {}
  for i = #ids, 1, -1 do
    local record = attempt('HMGET', JOB .. ids[i], 'ferryman', 'name', 'state')
    if record and record[3] and not (is_scheduled and record[2] ~= queue) then
      local task_id = task_id_of(ids[i], record[1])
      if wanted[task_id] then
        append(found, ids[i], task_id)
        append(found, '')
      end
    end
  end
  return {#ids == limit and 1 or 0, #ids, found}
end)
