-- What can be done to a job that nobody runs. kickq has no command for any of it: jobs are deleted as one does by hand, or queued
-- before they are due by the scheduler's own writes.
--
-- KEYS, and ARGV[1] to ARGV[3]: see _common.lua
-- ARGV[4]   queue
-- ARGV[5]   id
-- ARGV[6]   promote, cancel or delete
-- Result    'done'; 'missing', 'held' or 'refused', and nothing has changed
--
-- A worker of kickq takes an id from its list first, and says so in the record later: between, the job is held as well. So it is while
-- a scheduler has taken it from the schedule, and has not queued it: it would queue what is no more.

local queue, id, action = ARGV[4], ARGV[5], ARGV[6]

local ROLES = {new = 'waiting', queued = 'waiting', delayed = 'scheduled', retry = 'scheduled', ghost = 'scheduled'}

return reply_of(function()
  local now = clock()
  first_write()
  local record = attempt('HMGET', JOB .. id, 'state', 'name')
  local state = record and record[1]
  if not state or record[2] ~= queue then
    return 'missing'
  end
  if state == 'processing' or holder_of(queue, id) then
    return 'held'
  end
  local role = ROLES[state]
  if role == 'scheduled' and scheduler_has(id, now) then
    return 'held'
  end
  if action == 'promote' then
    local job = role == 'scheduled' and open_job(id)
    if not job or call('ZREM', SCHEDULED, id) == 0 then
      return 'refused'
    end
    call('RPUSH', QUEUE .. queue, id)
    move(job, 'queued')
    set_member(job, 'state', '"queued"')
    publish('queued', job.name, document_of(job))
    return 'done'
  end
  if not role and (action == 'cancel' or not FINISHED[state]) then
    return 'refused'
  end
  if role == 'waiting' and call('LREM', QUEUE .. queue, 0, id) == 0 then
    return 'held'
  end
  delete_job(queue, id, state)
  return 'done'
end)
