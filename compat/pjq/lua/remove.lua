-- Deletes one job that nobody runs. pjq has no word for it: the id leaves its container, and then the hash goes, or the program
-- would die at the id.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]   queue
-- ARGV[3]   id
-- ARGV[4]   the role of the only place from which to delete it, as in the result; '' any
-- Result    the role of its place: 'waiting', 'scheduled' (a retry that is delayed), 'done' or 'dead' (finished with an exit code);
--           'held' if it is running, and stays; '' if there is no such job here

local queue, id, only = ARGV[2], ARGV[3], ARGV[4]

local function is_wanted(role)
  return only == '' or only == role
end

-- Whether the job has failed, if it is finished.
local function has_failed()
  local json = attempt('HGET', record_of(id), 'json')
  local code = json and (object_of(json) or {}).exitcode
  return code ~= nil and code ~= cjson.null and code ~= 0
end

return reply_of(function()
  first_write()
  local is_dispatched = call('ZSCORE', dispatched(queue), id)
  local is_delayed = is_dispatched and is_leased(queue, id) and not holder_of(queue, id)
  if is_dispatched and not is_delayed or call('ZSCORE', processing(queue), id) then
    return 'held'
  end
  local role = ''
  if is_delayed then
    role = 'scheduled'
  elseif call('ZSCORE', finished(queue), id) then
    role = has_failed() and 'dead' or 'done'
  end
  if is_wanted('waiting') and call('LREM', queued(queue), 0, id) > 0 then
    if role ~= '' then
      return 'waiting' -- added again after it had ended: that goes, and the ended one stays
    end
    role = 'waiting'
  elseif role == '' or not is_wanted(role) then
    return ''
  end
  call('ZREM', dispatched(queue), id)
  drop(queue, id)
  call('ZREM', finished(queue), id)
  discard(queue, id)
  return role
end)
