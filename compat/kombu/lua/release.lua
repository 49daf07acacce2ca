-- Gives messages back that a consumer has and did not begin: they run next, in the order in which it took them.
--
-- KEYS, ARGV[1…6]   see _common.lua
-- ARGV[7]   queue
-- ARGV[8]   consumer
-- ARGV[9]   'some' for the tags that follow, 'all' for all, 'end' for all and the lease
-- ARGV[10…] delivery tags
-- Result    how many there were

local queue, consumer = ARGV[7], ARGV[8]

return reply_of(function()
  first_write()
  local named = {}
  for i = 10, #ARGV do
    named[ARGV[i]] = true
  end
  local count = 0
  for _, tag in ipairs(owned_by(queue, consumer, ARGV[9] ~= 'some' and MAX_PER_CALL or nil)) do
    if ARGV[9] ~= 'some' or named[tag] then
      put_back(tag, 'RPUSH')
      unmark(queue, tag)
      count = count + 1
    end
  end
  if ARGV[9] == 'end' and count < MAX_PER_CALL then
    end_lease(queue, consumer)
  end
  return count
end)
