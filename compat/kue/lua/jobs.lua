-- Jobs with all that stands in their records. Changes nothing.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]  'ids', or a state
-- ARGV[3…] ids; or a type ('' for all), the rank of the first job in the index, and how many at most
-- Result   for each job that there is {id, {field, value, …}, {log line, …}, score in the index of its state or ''}

return reply_of(function()
  local ids, found = {}, {}
  if ARGV[2] == 'ids' then
    for i = 3, math.min(#ARGV, 2 + MAX_PER_CALL) do
      append(ids, ARGV[i])
    end
  else
    local index = ARGV[3] == '' and by_state(ARGV[2]) or by_type(ARGV[3], ARGV[2])
    local first, count = tonumber(ARGV[4]), math.min(tonumber(ARGV[5]), MAX_PER_CALL)
    for _, member in ipairs(count > 0 and call('ZRANGE', index, first, first + count - 1) or {}) do
      append(ids, id_of(member))
    end
  end
  for _, id in ipairs(ids) do
    local job = string.match(id, '^[1-9]%d*$') and read(id)
    if job then
      local score = job.state and call('ZSCORE', by_state(job.state), member_of(id))
      append(found, {id, call('HGETALL', job_key(id)), call('LRANGE', job_key(id) .. ':log', 0, -1), score or ''})
    end
  end
  return found
end)
