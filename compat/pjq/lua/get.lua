-- Reads one job, and where it stands. Changes nothing.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]   id
-- Result    {queue, fields and values of the hash, {role, score, role, score …}}, roles as in compat/pjq/keys.py; false without a hash

local id = ARGV[2]

return reply_of(function()
  local fields = attempt('HGETALL', record_of(id))
  local json = fields and attempt('HGET', record_of(id), 'json')
  if not json then
    return false
  end
  local object = object_of(json)
  local queue = object and type(object.queue_name) == 'string' and object.queue_name or ''
  local places = {}
  local containers = {
    {'finished', finished(queue)}, {'processing', processing(queue)}, {'progress', progress_of(queue)},
    {'dispatched', dispatched(queue)},
  }
  for _, container in ipairs(containers) do
    local score = attempt('ZSCORE', container[2], id)
    if score then
      append(places, container[1], score)
    end
  end
  if #places == 0 and attempt('LPOS', queued(queue), id) then
    append(places, 'queued', '0')
  end
  return {queue, fields, places}
end)
