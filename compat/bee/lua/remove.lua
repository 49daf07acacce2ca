-- Cancels one job, as bee cancels.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue, '*' whichever it is in
-- ARGV[4]   id
-- ARGV[5]   role of the only place from which to remove it; '' any but held; '*' any, also what is cancelled or expired already
-- Result    the role of its place: 'waiting', 'scheduled', 'blocked', 'done', 'dead'; 'held' if it is running, and stays unless any
--           role will do; '' if there is no such job, or not there

local id, only = ARGV[4], ARGV[5]

local ROLES = {
  queued = 'waiting', new = 'blocked', retried = 'scheduled', running = 'held', completed = 'done', duplicate = 'done',
  failed = 'dead'
}

return reply_of(function()
  local now = clock()
  first_write()
  local found = attempt('HMGET', record_of(id), 'jid', 'queue', 'status')
  if not (found and found[1] and found[2]) or (ARGV[3] ~= '*' and found[2] ~= ARGV[3]) then
    return ''
  end
  local role = ROLES[found[3]] or (only == '*' and 'done')
  if role == 'blocked' and call('ZSCORE', set_of('delayed', found[2]), id) then
    role = 'scheduled'
  end
  if not role or (role == 'held' and only ~= '*') then
    return role or ''
  end
  if only ~= '' and only ~= '*' and only ~= role then
    return ''
  end
  cancel(now, id, {})
  return role
end)
