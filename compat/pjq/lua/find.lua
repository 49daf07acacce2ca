-- Finds the jobs of some tasks that wait, or are delayed, a chunk at a time. Changes nothing.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]   queue
-- ARGV[3]   'waiting' or 'scheduled'
-- ARGV[4]   most jobs to scan
-- ARGV[5]   how many have been scanned
-- ARGV[6]   what the ids of the original's own jobs begin with as task ids
-- ARGV[7…]  task ids
-- Result    {1 if there is more, how many were scanned, {id, task id, '' …}}
--
-- From the head, where new jobs arrive: they only make it look at some twice.

local queue, is_waiting, limit, seen, prefix = ARGV[2], ARGV[3] == 'waiting', tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local wanted = set_from(7)

local function task_of(id)
  local extra = extra_of(attempt('HGET', record_of(id), 'ferryman'))
  return extra and type(extra.id) == 'string' and extra.id or prefix .. id
end

return reply_of(function()
  local key = is_waiting and queued(queue) or leases(queue)
  local ids = call(is_waiting and 'LRANGE' or 'ZRANGE', key, seen, seen + limit - 1)
  local found = {}
  for _, id in ipairs(ids) do
    local task = task_of(id)
    if wanted[task] and (is_waiting or not holder_of(queue, id) and is_leased(queue, id)) then
      append(found, id, task)
      append(found, '')
    end
  end
  return {#ids == limit and 1 or 0, #ids, found}
end)
