-- The jobs of Celery tasks among those that wait, or that are delayed.
--
-- KEYS[1]   root of the side keys
-- KEYS[2]   what bee's keys begin with
-- ARGV[1]   now
-- ARGV[2]   hive
-- ARGV[3]   key of the sorted set, without what bee's keys begin with
-- ARGV[4]   how many members to pass over
-- ARGV[5]   how many to look at
-- ARGV[6]   what a task's id begins with, before the job's, for a job that Celery did not make
-- ARGV[7…]  ids of tasks
-- Result    {1 if there may be more, how many it has looked at, {id, id of the task, …}}

local seen, limit = tonumber(ARGV[4]), math.min(tonumber(ARGV[5]), MAX_PER_CALL)

return reply_of(function()
  local wanted, found = {}, {}
  for i = 7, #ARGV do
    wanted[ARGV[i]] = true
  end
  local ids = call('ZRANGE', BEE .. ARGV[3], seen, seen + limit - 1)
  for _, id in ipairs(ids) do
    local part = decoded(attempt('HGET', record_of(id), 'ferryman'))
    local task = type(part) == 'table' and part.as_of == nil and type(part.id) == 'string' and part.id or ARGV[6] .. id
    if wanted[task] then
      append(found, id, task)
    end
  end
  return {#ids == limit and 1 or 0, #ids, found}
end)
