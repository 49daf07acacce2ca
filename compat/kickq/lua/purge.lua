-- Deletes jobs that wait, those that stand first.
--
-- KEYS, and ARGV[1] to ARGV[3]: see _common.lua
-- ARGV[4]   queue
-- ARGV[5]   how many at most
-- Result    {how many, 1 if there are more}

local queue, limit = ARGV[4], math.min(tonumber(ARGV[5]), MAX_PER_CALL)

return reply_of(function()
  first_write()
  local ids, count = call('LRANGE', QUEUE .. queue, 0, limit - 1), 0
  for _, id in ipairs(ids) do
    local state = attempt('HGET', JOB .. id, 'state')
    -- Somebody may have queued a job that runs, or has run: that one only leaves the list.
    if state == 'new' or state == 'queued' then
      delete_job(queue, id, state)
      count = count + 1
    end
  end
  if #ids > 0 then
    call('LTRIM', QUEUE .. queue, #ids, -1)
  end
  return {count, call('EXISTS', QUEUE .. queue)}
end)
