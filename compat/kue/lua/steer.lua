-- What kue's own page and its HTTP interface do to a job that nobody runs: restarts it, changes its priority or data, removes it.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]  type
-- ARGV[3]  id
-- ARGV[4]  promote, reprioritise, edit, requeue, cancel or delete
-- ARGV[5]  the priority, or the data
-- Result   'done'; 'missing', 'held' or 'refused', and nothing has changed
--
-- A worker of kue takes a job out of its type's index first and says so in its record a moment later: between, it is held as well.
-- kue leaves one more wake token for each change of a waiting job's priority; here the one that there is does.

local queue, id, action, value = ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local WAITS = {inactive = true, delayed = true}
local FITS = {
  promote = {delayed = true}, reprioritise = WAITS, edit = WAITS, cancel = WAITS, requeue = {failed = true, complete = true},
  delete = {inactive = true, delayed = true, failed = true, complete = true},
}

return reply_of(function()
  local now = clock()
  first_write()
  local job = string.match(id, '^[1-9]%d*$') and read(id)
  if not job or job.type ~= queue then
    return 'missing'
  end
  local member = member_of(id)
  if job.state == 'active' or (job.state == 'inactive' and not call('ZSCORE', by_type(queue, 'inactive'), member)) then
    return 'held'
  end
  if not FITS[action][job.state or ''] or not score_text(job.priority or '0') then
    return 'refused'
  end
  if action == 'promote' then
    local due = tonumber(job.promote_at or '')
    if due and due <= now and is_locked('promotion:lock') then
      return 'done' -- a process of kue is about to
    end
    publish(id, 'promotion')
    enter(job, 'inactive', now)
  elseif action == 'requeue' then
    let_go(queue, id, true)
    enter(job, 'inactive', now)
  elseif action == 'edit' then
    call('HSET', job_key(id), 'data', value, 'updated_at', now)
  elseif action == 'reprioritise' then
    call('HSET', job_key(id), 'priority', value, 'updated_at', now)
    call('ZADD', P .. 'jobs', value, member)
    call('ZADD', by_type(queue, job.state), value, member)
    if job.state == 'inactive' or era() < V0_9 then
      call('ZADD', by_state(job.state), value, member)
    end
  else
    delete(job)
    let_go(queue, id, true)
  end
  return 'done'
end)
