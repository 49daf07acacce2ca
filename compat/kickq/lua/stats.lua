-- How many jobs of all queues are in each state. Changes nothing.
--
-- KEYS, and ARGV[1] to ARGV[3]: see _common.lua
-- Result    {state, how many …}

return reply_of(function()
  local counts = {}
  for _, word in ipairs(WORDS) do
    append(counts, word, call('SCARD', STATE .. word))
  end
  return counts
end)
