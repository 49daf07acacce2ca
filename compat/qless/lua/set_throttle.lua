-- Sets how many jobs may hold a throttle at the same time, or forgets it. Those that wait go on waiting until one of them is done, as
-- in reqless.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]  throttle
-- ARGV[4]  maximum, 0 any number; '' forgets it
-- ARGV[5]  seconds after which it is forgotten; 0 never
-- Result   1

return reply_of(function()
  local key = QL .. 'th:' .. ARGV[3]
  if ARGV[4] == '' then
    call('DEL', key)
    return 1
  end
  call('HSET', key, 'id', ARGV[3], 'maximum', ARGV[4])
  if tonumber(ARGV[5]) > 0 then
    call('EXPIRE', key, ARGV[5])
  end
  return 1
end)
