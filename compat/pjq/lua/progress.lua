-- Whether a consumer still holds a job. pjq keeps a progress only of accepted jobs, and ours are accepted when they end.
--
-- KEYS[1]   root of the side keys
-- KEYS[2]   what pjq's keys begin with
-- ARGV[1]   now
-- ARGV[2]   queue
-- ARGV[3]   consumer
-- ARGV[4]   id
-- Result    1, or 0 if it was lost

return reply_of(function()
  return is_held(ARGV[2], ARGV[3], ARGV[4]) and 1 or 0
end)
