-- The jobs of Celery tasks among those that wait, or that are delayed.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue
-- ARGV[4]   'waiting' or 'scheduled'
-- ARGV[5]   how many to look at
-- ARGV[6]   how many members to pass over
-- ARGV[7]   what a task's id begins with, before the job's, for a job that Celery did not make
-- ARGV[8…]  ids of tasks
-- Result    {1 if there may be more, how many it has looked at, {id, id of the task, '' …}}

local limit, seen = tonumber(ARGV[5]), tonumber(ARGV[6])

return reply_of(function()
  local wanted, found = set_from(8), {}
  local ids = call('ZRANGE', set_of(ARGV[4] == 'waiting' and 'queue' or 'delayed', ARGV[3]), seen, seen + limit - 1)
  for _, id in ipairs(ids) do
    local task = celery_word(attempt('HGET', record_of(id), 'ferryman'), 'id') or ARGV[7] .. id
    if wanted[task] then
      append(found, id, task)
      append(found, '')
    end
  end
  return {#ids == limit and 1 or 0, #ids, found}
end)
