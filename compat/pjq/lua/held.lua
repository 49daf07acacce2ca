-- The ids of the jobs that a consumer holds.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]   queue
-- ARGV[3]   consumer
-- Result    the ids

local queue, consumer = ARGV[2], ARGV[3]

return reply_of(function()
  local ids = {}
  for _, id in ipairs(held_by(queue, consumer)) do
    if is_leased(queue, id) then
      append(ids, id)
    end
  end
  return ids
end)
