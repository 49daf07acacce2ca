-- Deletes one job that nobody runs, as one does by hand: kickq has no command for it.
--
-- KEYS, and ARGV[1] to ARGV[3]: see _common.lua
-- ARGV[4]   queue
-- ARGV[5]   id
-- ARGV[6]   only if it is there: 'waiting', 'scheduled', 'done' or 'dead'; '' wherever it is
-- Result    where it was, one of these words; '' if there is no such job, or somebody runs it, or is about to queue it

local queue, id = ARGV[4], ARGV[5]

local ROLES = {
  new = 'waiting', queued = 'waiting', delayed = 'scheduled', retry = 'scheduled', ghost = 'scheduled', success = 'done',
  fail = 'dead',
}

return reply_of(function()
  first_write()
  local record = attempt('HMGET', JOB .. id, 'state', 'name')
  local state = record and record[1]
  local role = state and ROLES[state]
  if not role or record[2] ~= queue or holder_of(queue, id) or (ARGV[6] ~= '' and ARGV[6] ~= role) then
    return ''
  end
  if role == 'scheduled' and scheduler_has(id, clock()) then
    return ''
  end
  call('LREM', QUEUE .. queue, 0, id)
  delete_job(queue, id, state)
  return role
end)
