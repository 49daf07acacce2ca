-- Ends a message and publishes it again in its queue, to run last: as Celery's retry does, but at once.
--
-- KEYS, ARGV[1…6]   see _common.lua
-- ARGV[7]    queue
-- ARGV[8]    consumer
-- ARGV[9]    delivery tag
-- ARGV[10]   in how many ms it is due
-- ARGV[11]   the message that takes its place, '' for the same with one retry more
-- Result     'waiting', or 'lost' if this consumer does not have it (any more)

local queue, consumer, tag, delay, text = ARGV[7], ARGV[8], ARGV[9], tonumber(ARGV[10]), ARGV[11]

return reply_of(function()
  local now = clock()
  if not owns(queue, consumer, tag) then
    return 'lost'
  end
  if text == '' then
    local found, _, _, message = unacked(tag)
    if not found then
      return 'lost'
    end
    text = found
    text = with_member(text, {'headers', 'retries'}, string.format('%.0f', (tonumber(headers_of(message).retries) or 0) + 1))
    text = with_member(text, {'headers', 'eta'}, delay > 0 and quoted(iso(now + delay)) or 'null')
  elseif delay > 0 then
    text = with_member(text, {'headers', 'eta'}, quoted(iso(now + delay)))
  end
  local message = message_in(text)
  call('LPUSH', bucket(queue, step_of(message and message.properties.priority)), text)
  end_message(tag)
  unmark(queue, tag)
  return 'waiting'
end)
