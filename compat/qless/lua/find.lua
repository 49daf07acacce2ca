-- Finds jobs of a queue that wait or are scheduled, by the ids of their Celery tasks. Changes nothing.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue
-- ARGV[4]   'waiting' or 'scheduled'
-- ARGV[5]   most jobs to look at, and
-- ARGV[6]   how many have been looked at: all are looked for at once
-- ARGV[7]   what the id of a task begins with that is no more than a job of qless
-- ARGV[8…]  task ids
-- Result    {0: there is no more, how many were found, {id, task id, '' …}}
--
-- A job that Celery has published has its task's id, or that with a number behind where another job had it; its field `ferryman` has
-- the task's id at any rate. Others go by their own id.

local queue, prefix = ARGV[3], ARGV[7]

-- How many jobs of one task may stand in a keyspace at the same time and be found.
local SAME = 10

local function stands(id)
  local was_in = fields_of(id, 'queue')
  if was_in ~= queue then
    return false
  end
  local scheduled = call('ZSCORE', zset(queue, 'scheduled'), id)
  if ARGV[4] == 'scheduled' then
    return scheduled
  end
  return call('ZSCORE', zset(queue, 'work'), id) or call('ZSCORE', zset(queue, 'throttled'), id) or call('ZSCORE', zset(queue, 'depends'), id)
end

return reply_of(function()
  local found = {}
  local function check(id, task, own)
    local known = celery_word(attempt('HGET', RECORD .. id, 'ferryman'), 'id')
    if (known == task or (own and not known)) and stands(id) then
      append(found, id, task)
      append(found, '')
    end
  end
  for i = 8, #ARGV do
    local task = ARGV[i]
    check(task, task, false)
    for n = 2, SAME do
      local other = task .. '-' .. n
      if call('EXISTS', RECORD .. other) == 0 then
        break
      end
      check(other, task, false)
    end
    if prefix ~= '' and string.sub(task, 1, #prefix) == prefix then
      check(string.sub(task, #prefix + 1), task, true)
    end
  end
  return {0, #found / 3, found}
end)
