-- Gives messages back that a consumer has. What it did not begin runs next, in the order in which it took them; what it has rejected
-- in order to see it again runs last, as with kombu.
--
-- KEYS, ARGV[1…6]   see _common.lua
-- ARGV[7]   queue
-- ARGV[8]   consumer
-- ARGV[9]   'requeue': these tags, to run last; 'some': these tags; 'all' that it has; 'leave': all, and the consumer goes; at most
--           MAX_PER_CALL of all
-- ARGV[10…] delivery tags
-- Result    for each of the tags to run last 1, or 0 for one that this consumer does not have (any more); else 1 for each given back

local queue, consumer, which = ARGV[7], ARGV[8], ARGV[9]

local function give_back(tag, push)
  put_back(tag, push)
  unmark(queue, tag)
  return 1
end

return reply_of(function()
  first_write()
  local flags = {}
  if which == 'requeue' then
    for _, tag in ipairs(args_from(10)) do
      append(flags, owns(queue, consumer, tag) and give_back(tag, 'LPUSH') or 0)
    end
    return flags
  end
  local named, is_some = set_from(10), which == 'some'
  for _, tag in ipairs(owned_by(queue, consumer, not is_some and MAX_PER_CALL or nil)) do
    if named[tag] or not is_some then
      append(flags, give_back(tag, 'RPUSH'))
    end
  end
  if which == 'leave' and #flags < MAX_PER_CALL then
    end_lease(queue, consumer)
  end
  return flags
end)
