-- Cancels jobs: nothing is left of them. As qless does it, but for jobs whose statistics somebody has deleted, which stop qless half way.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue; '' any
-- ARGV[4]   the role of the only place from which to remove them; '' any but that of running ones, which stay; 'any' also those
-- ARGV[5]   '1': a job for which others wait, which qless does not cancel, fails instead where it waits or is scheduled, so that
--           nobody runs it
-- ARGV[6…]  ids
-- Result    for each id the role of its place: 'waiting', 'scheduled', 'blocked', 'dead' or 'held'; 'held' also if it runs and stays;
--           '' if there is no such job there, or it is complete; {'depended', id, other}: a job that is not among these waits for it

local queue, only, fails = ARGV[3], ARGV[4], ARGV[5] == '1'

local ROLES = {failed = 'dead', depends = 'blocked', running = 'held', scheduled = 'scheduled'}

local function role_of(id, state, was_in)
  if state == 'throttled' and call('ZSCORE', zset(was_in, 'throttled'), id) then
    return 'blocked'
  end
  if call('ZSCORE', zset(was_in, 'scheduled'), id) then
    return 'scheduled'
  end
  return ROLES[state] or 'waiting'
end

-- A job that waits for this one and is not among those listed.
local function waiting_besides(id, listed)
  for _, other in ipairs(call('SMEMBERS', RECORD .. id .. '-dependents')) do
    if not listed[other] then
      return other
    end
  end
end

return reply_of(function()
  local now = seconds()
  first_write()
  local ids = {unpack(ARGV, 6)}
  local listed = {}
  for _, id in ipairs(ids) do
    listed[id] = true
  end
  local roles, going, failing = {}, {}, {}
  for _, id in ipairs(ids) do
    local state, was_in = fields_of(id, 'state', 'queue')
    local role = ''
    if state and state ~= 'complete' and (queue == '' or was_in == queue) then
      role = role_of(id, state, was_in or '')
      if only ~= '' and only ~= 'any' and only ~= role then
        role = ''
      elseif role ~= 'held' or only == 'any' then
        local other = waiting_besides(id, listed)
        if not other then
          append(going, id)
        elseif not fails then
          refuse('ok', {'depended', id, other}) -- before the first write
        elseif role == 'waiting' or role == 'scheduled' then
          append(failing, id)
        else
          role = ''
        end
      end
    end
    append(roles, role)
  end
  for _, id in ipairs(failing) do
    local was_in = fields_of(id, 'queue')
    fail_unrun(now, was_in, id, was_in .. '-revoked', 'Revoked while other jobs wait for it')
  end
  for _, id in ipairs(going) do
    cancel(now, id)
  end
  return roles
end)
