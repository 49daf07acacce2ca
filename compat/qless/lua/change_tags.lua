-- Adds tags to a job, or takes some away.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   id
-- ARGV[4]   'add' or 'remove'
-- ARGV[5…]  tags
-- Result    {1, its tags then}; {0} if there is no such job

local id = ARGV[3]

return reply_of(function()
  local now = seconds()
  local text, queue = fields_of(id, 'tags', 'queue')
  if text == nil then
    return {0}
  end
  local tags, has = {}, {}
  for _, tag in ipairs(table_in(text)) do
    append(tags, tag)
    has[tag] = true
  end
  for _, tag in ipairs({unpack(ARGV, 5)}) do
    if ARGV[4] == 'add' then
      if not has[tag] then
        append(tags, tag)
        has[tag] = true
      end
      add_tag(now, tag, id)
    else
      local kept = {}
      for _, other in ipairs(tags) do
        if other ~= tag then
          append(kept, other)
        end
      end
      tags = kept
      remove_tag(queue, tag, id)
    end
  end
  call('HSET', RECORD .. id, 'tags', json_list(tags))
  return {1, tags}
end)
