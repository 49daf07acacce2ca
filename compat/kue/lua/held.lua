-- The ids of the jobs that a consumer holds and that nobody has ended, changed or taken meanwhile. Changes nothing.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]  type
-- ARGV[3]  consumer
-- Result   ids

return reply_of(function()
  local ids = {}
  for _, id in ipairs(held_by(ARGV[2], ARGV[3])) do
    local job = read(id)
    if job and job.type == ARGV[2] and runs_at(job, ARGV[3]) then
      append(ids, id)
    end
  end
  return ids
end)
