-- Which groups of failures there are, with the number of jobs in each; or the jobs of one. Changes nothing.
--
-- KEYS[1]  root of the side keys
-- KEYS[2]  what the keys of qless begin with
-- ARGV[1]  now
-- ARGV[2]  core
-- ARGV[3]  group; none: the groups
-- ARGV[4]  how many jobs to leave out
-- ARGV[5]  how many jobs
-- Result   {group, number, …}, or ids, those that failed last first

return reply_of(function()
  if ARGV[3] then
    return call('LRANGE', QL .. 'f:' .. ARGV[3], ARGV[4], ARGV[4] + ARGV[5] - 1)
  end
  local found = {}
  for _, group in ipairs(call('SMEMBERS', QL .. 'failures')) do
    append(found, group, call('LLEN', QL .. 'f:' .. group))
  end
  return found
end)
