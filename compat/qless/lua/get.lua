-- All that is known about jobs. Changes nothing.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3…]  ids
-- Result    for each id {} if there is no such job, or {id, {field, value, …}, history, dependencies, dependents, 1 if it is watched}

return reply_of(function()
  local found = {}
  for i = 3, #ARGV do
    local id = ARGV[i]
    local job = {}
    if fields_of(id, 'state') ~= nil then
      job = {
        id,
        call('HGETALL', RECORD .. id),
        call('LRANGE', RECORD .. id .. '-history', 0, -1),
        call('SMEMBERS', RECORD .. id .. '-dependencies'),
        call('SMEMBERS', RECORD .. id .. '-dependents'),
        call('ZSCORE', QL .. 'tracked', id) and 1 or 0,
      }
    end
    append(found, job)
  end
  return found
end)
