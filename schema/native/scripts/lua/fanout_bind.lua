-- Binds a queue to a fanout exchange, or renews its expiry.
--
-- KEYS      the exchange's, see _fanout.lua
-- ARGV[1]   now
-- ARGV[2]   queue
-- ARGV[3]   ms until the binding expires, '' never
-- Result    the queue's cursor: an old one stays as it is, a new one is the stream's last id

local function last_id()
  if call('EXISTS', STREAM) == 0 then
    return '0-0'
  end
  local last = call('XREVRANGE', STREAM, '+', '-', 'COUNT', 1)[1]
  return last and last[1] or '0-0'
end

return reply_of(function()
  local now = clock()
  first_write()
  local _, last = sweep(now)
  local id, expiry = cursor_of(ARGV[2], now) or last_id(), expiry_at(now, ARGV[3])
  call('HSET', CURSORS, ARGV[2], cursor_text(id, expiry))
  last = math.max(last, tonumber(expiry) or math.huge)
  live_until(STREAM, now, last)
  live_until(CURSORS, now, last)
  return id
end)
