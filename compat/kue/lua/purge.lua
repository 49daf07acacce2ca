-- Deletes jobs of a type that wait, each as kue removes one.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]  type
-- ARGV[3]  at most how many
-- Result   {how many, 1 if there may be more}

local queue, limit = ARGV[2], tonumber(ARGV[3])

return reply_of(function()
  first_write()
  local index = by_type(queue, 'inactive')
  local members, count = call('ZRANGE', index, 0, limit - 1), 0
  for _, member in ipairs(members) do
    local id = id_of(member)
    local job = id and read(id)
    if job and job.type == queue and (job.state or 'inactive') == 'inactive' then
      job.state = 'inactive'
      delete(job)
      let_go(queue, id, true)
      count = count + 1
    end
  end
  -- Also what named no job that waits here.
  in_slices('ZREM', index, members)
  local list = tokens_of(queue)
  if call('ZCARD', index) == 0 then
    call('DEL', list)
  end
  return {count, #members == limit and 1 or 0}
end)
