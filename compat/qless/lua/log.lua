-- Adds a line of an application to a job's history.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]  id
-- ARGV[4]  what happened
-- ARGV[5]  more about it, JSON, '' nothing
-- Result   1; 0 if there is no such job

return reply_of(function()
  local now = seconds()
  local queue = fields_of(ARGV[3], 'queue')
  if queue == nil then
    return 0
  end
  local about
  if ARGV[5] ~= '' then
    about = cjson.decode(ARGV[5])
  end
  log_event(now, queue, ARGV[3], ARGV[4], about)
  return 1
end)
