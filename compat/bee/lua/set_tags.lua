-- Gives a job these tags and no others.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   id
-- ARGV[4]   tags, a JSON list
-- Result    1; 0 if there is no such job
--
-- bee leaves the job in the sets of its earlier tags, where searches go on finding it.

local id, tags = ARGV[3], decoded(ARGV[4])

return reply_of(function()
  local found = call('HMGET', record_of(id), 'jid', 'tags')
  if not found[1] then
    return 0
  end
  call('HSET', record_of(id), 'tags', cjson.encode(tags))
  local kept = {}
  for _, tag in ipairs(tags) do
    kept[tostring(tag)] = true
    call('SADD', BEE .. 's:tags:' .. tag, id)
  end
  for _, tag in ipairs(list_of(found[2])) do
    if (type(tag) == 'string' or type(tag) == 'number') and not kept[tostring(tag)] then
      call('SREM', BEE .. 's:tags:' .. tag, id)
    end
  end
  return 1
end)
