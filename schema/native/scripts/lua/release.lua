-- Puts jobs that a consumer holds but never started back to their old places, as if they had not been delivered, at most LIMIT of
-- them.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   consumer
-- ARGV[3]   'some': the ids that follow; 'all': whatever the consumer holds; 'leave': the same, and the consumer is struck off, in
--           the call after which it holds nothing
-- ARGV[4…]  ids
-- Result    how many went back; of 'all' and 'leave' there may be more if it is LIMIT

local consumer, which = ARGV[2], ARGV[3]

return answer(function()
  local now = clock()
  open()
  drain()
  local ids = {}
  if which == 'some' then
    for i = 4, #ARGV do
      append(ids, ARGV[i])
    end
  else
    ids = call('ZRANGE', HELD .. consumer, 0, LIMIT - 1)
  end
  local released = 0
  for _, id in ipairs(ids) do
    if put_back(consumer, id) then
      released = released + 1
      if (tonumber(attempt('HGET', JOB .. id, 'deliveries') or nil) or 0) > 0 then
        attempt('HINCRBY', JOB .. id, 'deliveries', -1)
      end
    end
  end
  if which == 'leave' and released < LIMIT then
    call('ZREM', CONSUMERS, consumer)
  end
  count('released', released)
  settle(now)
  return released
end)
