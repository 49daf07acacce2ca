-- Cancels the jobs that wait in a queue, as bee cancels: their clients are told, their children go with them.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue
-- ARGV[4]   limit
-- Result    {how many, 1 if there may be more}

local waiting, limit = set_of('queue', ARGV[3]), math.min(tonumber(ARGV[4]), MAX_PER_CALL)

return reply_of(function()
  local now, count = clock(), 0
  first_write()
  local ids = call('ZRANGE', waiting, 0, limit - 1)
  for _, id in ipairs(ids) do
    if cancel(now, id, {}) then
      count = count + 1
    end
    call('ZREM', waiting, id)
  end
  return {count, #ids == limit and 1 or 0}
end)
