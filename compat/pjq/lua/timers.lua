-- Does what the program does at every message, in all queues that consumers of ours serve.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]   how often a job whose consumer was lost is given out again, '' without limit
-- Result    1 if there may be more to do at once, or 0

return reply_of(function()
  local at = moment()
  for _, queue in ipairs(served_queues()) do
    first_write()
    if tend(queue, at, tonumber(ARGV[2]) or math.huge) then
      return 1
    end
    keep_served(queue)
  end
  return 0
end)
