-- Which groups of failures there are, with the number of jobs in each; or the jobs of one. Changes nothing.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
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
