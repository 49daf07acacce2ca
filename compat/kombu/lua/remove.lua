-- Deletes one message that waits in a queue. Looks at a bounded number of them, those that run next first.
--
-- KEYS, ARGV[1…6]   see _common.lua
-- ARGV[7]   queue
-- ARGV[8]   delivery tag
-- Result    'waiting', or '' if there is none

local queue, tag = ARGV[7], ARGV[8]

-- Messages, and bytes of them, that one call looks at, and how many it reads at once.
local MOST, MOST_BYTES, PAGE = 20000, 33554432, 100

return reply_of(function()
  first_write()
  local looked, bytes = 0, 0
  for _, step in ipairs(steps_of()) do
    local key, at = bucket(queue, step), 0
    local texts
    repeat
      texts = call('LRANGE', key, -at - PAGE, -at - 1)
      for i = #texts, 1, -1 do
        local text = texts[i]
        local _, found = nil, nil
        if string.find(text, tag, 1, true) then
          _, found = message_in(text)
        end
        if found == tag then
          call('LREM', key, -1, text)
          return 'waiting'
        end
        looked, bytes = looked + 1, bytes + #text
      end
      at = at + #texts
    until #texts < PAGE or looked >= MOST or bytes >= MOST_BYTES
  end
  return ''
end)
