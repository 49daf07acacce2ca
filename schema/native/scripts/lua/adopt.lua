-- Makes a queue of what a migration has written: it exists, its sequence is above every one given, a consumer is woken.
-- Unlike the transitions this is sent as a plain command, so a refusal is an error reply. Idempotent.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   the sequence is at least this
-- ARGV[3]   priority order of a new queue
-- Result    'OK'

local reply = reply_of(function()
  local now = clock()
  local least = tonumber(ARGV[2])
  open_queue()
  if not queue.schema then
    -- No time in it: the same migration gives the same keyspace, whenever and with whichever engine it is made.
    create_queue(least, queue.priority_order or ARGV[3])
  end
  if (tonumber(call('HGET', META, 'sequence') or nil) or 0) < least then
    call('HSET', META, 'sequence', least)
  end
  mark_declared() -- it was made to last
  if queue.max_bytes then
    begin_accounting()
  end
  finish(now)
end)

if reply.err then
  return reply
end
if reply[1] ~= 'ok' then
  return {err = 'FERRYMAN ' .. reply[1] .. ' ' .. META .. ': ' .. tostring(reply[#reply])}
end
return {ok = 'OK'}
