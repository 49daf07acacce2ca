-- Adds a line of an application to a job's history.
--
-- KEYS[1]  root of the side keys
-- KEYS[2]  what the keys of qless begin with
-- ARGV[1]  now
-- ARGV[2]  core
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
