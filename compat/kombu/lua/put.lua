-- Publishes a message as kombu's producers do: to the queues to which its exchange leads, each at the head of its bucket.
--
-- KEYS, ARGV[1…6]   see _common.lua
-- ARGV[7]    the publication (compat/side.py), '' if it need not be recognised
-- ARGV[8]    message
-- ARGV[9]    its delivery tag
-- ARGV[10]   exchange, '' for the queue that the routing key names
-- ARGV[11]   routing key
-- ARGV[12]   bucket
-- ARGV[13]   in how many ms it is due: Celery's workers take it at once, and wait
-- ARGV[14]   ms for which its queues live after this, '' for ever
-- ARGV[15]   '1' to bind the queue as Celery does it by default
-- Result     {delivery tag, how many queues}; 0 queues: nothing is stored

local publication, text, tag, exchange, routing_key, step = unpack(ARGV, 7, 12)

return reply_of(function()
  local now = clock()
  local known = published_as(publication)
  if known then
    return {known, 1}
  end
  if tonumber(ARGV[13]) > 0 then
    text = with_member(text, {'headers', 'eta'}, quoted(iso(now + tonumber(ARGV[13]))))
  end
  local queues = queues_of(exchange, routing_key)
  for _, queue in ipairs(queues) do
    call('LPUSH', bucket(queue, step), text)
    for _, each in ipairs(ARGV[14] ~= '' and steps_of() or {}) do
      call('PEXPIRE', bucket(queue, each), ARGV[14])
    end
    if ARGV[15] == '1' then
      local member = queue .. SEP .. SEP .. queue
      call('SADD', PREFIX .. '_kombu.binding.' .. queue, member)
      call('SADD', PREFIX .. '_kombu.binding_permanent.' .. queue, member)
    end
  end
  if #queues > 0 then
    remember(publication, tag)
  end
  return {tag, #queues}
end)
