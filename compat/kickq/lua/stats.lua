-- How many jobs of all queues are in each state. Changes nothing.
--
-- KEYS      see _common.lua
-- ARGV[1]   now
-- Result    {state, how many …}

return reply_of(function()
  local counts = {}
  for _, word in ipairs(WORDS) do
    append(counts, word, call('SCARD', STATE .. word))
  end
  return counts
end)
