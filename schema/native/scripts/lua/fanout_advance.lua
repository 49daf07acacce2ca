-- Remembers up to where a queue has read a fanout exchange's stream. A cursor only moves forward.
--
-- KEYS      the exchange's, see _fanout.lua
-- ARGV[1]   now
-- ARGV[2]   queue
-- ARGV[3]   id of the last message read
-- ARGV[4]   ms until the binding expires, '' never
-- Result    1, or 0 if the queue is not bound (any more) and must be bound again

-- Stream ids compare by their two numbers, each of up to 64 bits: as text, longer or else greater.
local function is_after(id, other)
  local function parts(text)
    return string.match(text, '^0*(%d+)%-0*(%d+)$')
  end
  local ms, sequence = parts(id)
  local other_ms, other_sequence = parts(other)
  if not (ms and other_ms) then
    return ms ~= nil
  end
  local function compare(a, b)
    if #a ~= #b then
      return #a < #b and -1 or 1
    end
    return a == b and 0 or (a < b and -1 or 1)
  end
  local order = compare(ms, other_ms)
  return order > 0 or (order == 0 and compare(sequence, other_sequence) > 0)
end

return reply_of(function()
  local now = clock()
  first_write()
  local cursor = cursor_of(ARGV[2], now)
  if not cursor then
    return 0
  end
  local expiry = expiry_at(now, ARGV[4])
  call('HSET', CURSORS, ARGV[2], cursor_text(is_after(ARGV[3], cursor) and ARGV[3] or cursor, expiry))
  local left, moment = call('PTTL', CURSORS), tonumber(expiry) or math.huge
  if left >= 0 and moment > now + left then
    live_until(STREAM, now, moment)
    live_until(CURSORS, now, moment)
  end
  return 1
end)
