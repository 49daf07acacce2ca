-- Who holds a throttle, and who waits for it. Changes nothing.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]  throttle
-- Result   {maximum as text, ids that hold it, ids that wait, seconds until the maximum is forgotten or less than 0}

return reply_of(function()
  local name = ARGV[3]
  return {
    tostring(maximum_of(name)), call('ZRANGE', slots(name), 0, -1), call('ZRANGE', throttled_by(name), 0, -1),
    call('TTL', QL .. 'th:' .. name),
  }
end)
