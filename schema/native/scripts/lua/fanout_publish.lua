-- Broadcasts a message to every queue bound to a fanout exchange.
--
-- KEYS      the exchange's, see _fanout.lua
-- ARGV[1]   now
-- ARGV[2]   most messages that the stream keeps (about)
-- ARGV[3]   message
-- ARGV[4]   '1' if it may stand in the stream already, '' if not: a publish repeated after its answer was lost
-- Result    the message's id in the stream; '' if no queue is bound, and nothing was stored

-- Most messages, and bytes of them, in which a repeated one is looked for, the last ones first: it was published a moment ago.
local MOST, BYTES, PAGE = 10000, 4 * 1024 * 1024, 20

local function id_of(message)
  local seen, bytes, last = 0, 0, '+'
  while seen < MOST and bytes < BYTES do
    local entries = call('XREVRANGE', STREAM, last, '-', 'COUNT', PAGE)
    for _, entry in ipairs(entries) do
      if entry[2][2] == message then
        return entry[1]
      end
      bytes = bytes + #entry[2][2]
    end
    if #entries < PAGE then
      return nil
    end
    seen, last = seen + PAGE, '(' .. entries[#entries][1]
  end
  return nil
end

return reply_of(function()
  local now = clock()
  local bound, last = sweep(now)
  if bound == 0 then
    return ''
  end
  local id = ARGV[4] == '1' and id_of(ARGV[3])
  if id then
    return id
  end
  id = call('XADD', STREAM, 'MAXLEN', '~', ARGV[2], '*', 'message', ARGV[3])
  live_until(STREAM, now, last)
  return id
end)
