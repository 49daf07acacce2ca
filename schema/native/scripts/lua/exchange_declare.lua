-- Declares an exchange. Refused ('type') for another type than it has.
--
-- KEYS[1]   exchange hash, see _exchange.lua
-- ARGV[1]   now
-- ARGV[2]   type
-- ARGV[3]   alternate exchange or ''
-- ARGV[4]   '1' if it goes with its last binding
-- Result    the exchange's version after it

return reply_of(function()
  local now = clock()
  first_write(KEYS[1])
  local known = call('HMGET', KEYS[1], 'type', 'alternate')
  if known[1] and known[1] ~= ARGV[2] then
    refuse('type', known[1], ARGV[2])
  end
  call('HSET', KEYS[1], 'type', ARGV[2])
  if ARGV[4] == '1' then
    call('HSET', KEYS[1], 'auto-delete', 1)
  end
  if ARGV[3] == '' then
    call('HDEL', KEYS[1], 'alternate')
  else
    call('HSET', KEYS[1], 'alternate', ARGV[3])
  end
  if known[1] and (known[2] or '') == ARGV[3] then
    return version_of(KEYS[1])
  end
  return new_version(KEYS[1], now)
end)
