-- Tells of a job's progress, which bee stores nowhere.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue
-- ARGV[4]   id
-- ARGV[5]   percentage
-- Result    1; 0 if the job was not the consumer's any more

local queue, id = ARGV[3], ARGV[4]

return reply_of(function()
  if not is_held(queue, id) then
    return 0
  end
  publish(queue, {jid = id, type = 'progress', progress = tonumber(ARGV[5])})
  return 1
end)
