-- Deletes a job that nobody runs, as kue removes one.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]  type
-- ARGV[3]  id
-- ARGV[4]  the role of the only place from which to delete it, '' any
-- Result   where it was: 'waiting', 'scheduled', 'done' or 'dead'; 'held' if it runs, and stays; '' if there is no such job

local queue, id, only = ARGV[2], ARGV[3], ARGV[4]
local ROLES = {inactive = 'waiting', delayed = 'scheduled', active = 'held', complete = 'done', failed = 'dead'}

return reply_of(function()
  first_write()
  local job = string.match(id, '^[1-9]%d*$') and read(id)
  local role = job and job.type == queue and ROLES[job.state or '']
  if not role or role == 'held' then
    return role or ''
  end
  if only ~= '' and only ~= role then
    return ''
  end
  delete(job)
  let_go(queue, id, true)
  return role
end)
