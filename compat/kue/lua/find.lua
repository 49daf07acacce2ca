-- Finds the jobs of some tasks that wait or are delayed, a chunk at a time, from the end: jobs leave at the front, so what has been
-- looked at stays comparable between chunks. Changes nothing.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]  type
-- ARGV[3]  'waiting' or 'scheduled'
-- ARGV[4]  most jobs to look at
-- ARGV[5]  how many have been looked at
-- ARGV[6]  what the id of a task begins with that is no more than a job of kue
-- ARGV[7…] task ids
-- Result   {1 if there is more, how many were looked at, {id, task id, '' …}}

local queue, limit, seen, prefix = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local wanted, state = set_from(7), ARGV[3] == 'waiting' and 'inactive' or 'delayed'

return reply_of(function()
  local members = call('ZRANGE', by_type(queue, state), -seen - limit, -seen - 1)
  local found = {}
  for _, member in ipairs(members) do
    local id = id_of(member)
    local task = id and (celery_word(attempt('HGET', job_key(id), 'ferryman'), 'id') or prefix .. id)
    if task and wanted[task] then
      append(found, id, task)
      append(found, '')
    end
  end
  return {#members == limit and 1 or 0, #members, found}
end)
