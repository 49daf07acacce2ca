-- Cancels jobs: nothing is left of them. As qless does it, but for jobs whose statistics somebody has deleted, which stop qless half way.
--
-- KEYS[1]   root of the side keys
-- KEYS[2]   what the keys of qless begin with
-- ARGV[1]   now
-- ARGV[2]   core
-- ARGV[3]   queue; '' any
-- ARGV[4]   the role of the only place from which to remove them; '' any but that of running ones, which stay; 'any' also those
-- ARGV[5…]  ids
-- Result    for each id the role of its place: 'waiting', 'scheduled', 'blocked', 'dead' or 'held'; 'held' also if it runs and stays;
--           '' if there is no such job there, or it is complete; {'depended', id, other}: a job that is not among these waits for it

local queue, only = ARGV[3], ARGV[4]

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

return reply_of(function()
  local now = seconds()
  first_write()
  local ids = {unpack(ARGV, 5)}
  local listed = {}
  for _, id in ipairs(ids) do
    listed[id] = true
  end
  local roles, going = {}, {}
  for _, id in ipairs(ids) do
    local state, was_in = fields_of(id, 'state', 'queue')
    local role = ''
    if state and state ~= 'complete' and (queue == '' or was_in == queue) then
      role = role_of(id, state, was_in or '')
      if only ~= '' and only ~= 'any' and only ~= role then
        role = ''
      elseif role ~= 'held' or only == 'any' then
        append(going, id)
        for _, other in ipairs(call('SMEMBERS', RECORD .. id .. '-dependents')) do
          if not listed[other] then
            refuse('ok', {'depended', id, other}) -- before the first write
          end
        end
      end
    end
    append(roles, role)
  end
  for _, id in ipairs(going) do
    cancel(now, id)
  end
  return roles
end)
