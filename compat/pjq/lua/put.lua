-- Stores a job and puts it at the end of its queue, once for each publication.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]   queue
-- ARGV[3]   id
-- ARGV[4]   the job, a JSON object with uuid and queue_name
-- ARGV[5]   what Celery knows of it beyond, or ''
-- ARGV[6]   <producer>-<n>, or ''
-- ARGV[7]   '1' to note when the job was made
-- Result    its id, or that of the job that this publication has made before; '' if a key of this name exists: nothing was stored

local queue, id = ARGV[2], ARGV[3]

return reply_of(function()
  local known = published_as(ARGV[6])
  if known then
    return known
  end
  if call('EXISTS', record_of(id)) == 1 then
    return ''
  end
  local json = ARGV[4]
  if ARGV[7] == '1' then
    json = with_members(json, {'created_at', quoted(iso_text(moment()))})
  end
  call('HSET', record_of(id), 'json', json)
  if ARGV[5] ~= '' then
    call('HSET', record_of(id), 'ferryman', ARGV[5])
  end
  call('LPUSH', queued(queue), id)
  remember(ARGV[6], id)
  return id
end)
