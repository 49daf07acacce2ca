-- Begins to watch a job, or stops: what happens to it is published from then on under its id alone.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]  id
-- ARGV[4]  'track' or 'untrack'
-- Result   1; 0 if there is no such job to be watched

local id = ARGV[3]

return reply_of(function()
  local now = seconds()
  if ARGV[4] == 'untrack' then
    publish('untrack', id)
    call('ZREM', QL .. 'tracked', id)
    return 1
  end
  if fields_of(id, 'state') == nil then
    return 0
  end
  publish('track', id)
  call('ZADD', QL .. 'tracked', now, id)
  return 1
end)
