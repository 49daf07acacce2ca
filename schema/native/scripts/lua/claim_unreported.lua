-- Claims dead tasks whose end no Celery worker has reported yet, for one worker and a time. What it has not reported by then
-- (reported.lua) is claimed again by the next caller.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   most tasks to claim; fewer come, but one at least, if their messages are large
-- ARGV[3]   ms for which they are claimed
-- Result    {now, from when on there may be more to claim, ms, or -1 if none is left, 1 if the order is descending, for each task {id,
--           1 if it was claimed before or 0, score in waiting, time of death ms, deliveries, {field, value, …}}}

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  local claimed, bytes = {}, 0
  local free = call('ZRANGEBYSCORE', UNREPORTED, '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[2])
  for i = 1, #free, 2 do
    local id = free[i]
    local died_at = call('ZSCORE', DEAD, id)
    bytes = bytes + size_of(id)
    if not died_at then
      call('ZREM', UNREPORTED, id) -- removed by a repair
    elseif #claimed == 0 or bytes <= MAX_READ_BYTES then
      call('ZADD', UNREPORTED, now + ARGV[3], id)
      append(claimed, dead_letter_reply(id, tonumber(free[i + 1]) > 0 and 1 or 0, died_at))
    end
  end
  local next_claim = lowest_score(UNREPORTED)
  if next_claim == math.huge and queue.unreported then
    set_meta('unreported', nil)
  end
  local order = queue.priority_order == 'descending' and 1 or 0
  return {now, next_claim < math.huge and next_claim or -1, order, unpack(claimed)}
end)
