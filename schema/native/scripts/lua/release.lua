-- Puts jobs that a consumer holds but never started back where they waited, as not delivered; at most MAX_PER_CALL.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   consumer
-- ARGV[3]   'some': the ids that follow; 'all': whatever the consumer holds; 'leave': the same, and the consumer is unregistered, in
--           the call after which it holds nothing
-- ARGV[4…]  ids
-- Result    how many went back; of 'all' and 'leave' there may be more if it is MAX_PER_CALL

local consumer, which = ARGV[2], ARGV[3]

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  sample(now)
  local ids = {}
  if which == 'some' then
    for i = 4, #ARGV do
      append(ids, ARGV[i])
    end
  else
    ids = call('ZRANGE', HELD .. consumer, 0, MAX_PER_CALL - 1)
  end
  local released = 0
  for _, id in ipairs(ids) do
    if return_job(consumer, id) then
      released = released + 1
      if (tonumber(attempt('HGET', JOB .. id, 'deliveries') or nil) or 0) > 0 then
        attempt('HINCRBY', JOB .. id, 'deliveries', -1)
      end
    end
  end
  if which == 'leave' and released < MAX_PER_CALL then
    call('ZREM', CONSUMERS, consumer)
  end
  count('released', released)
  finish(now)
  return released
end)
