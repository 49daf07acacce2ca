-- Which jobs a consumer holds; those that somebody else has ended or deleted meanwhile are not among them. Changes nothing.
--
-- KEYS      see _common.lua
-- ARGV[1]   now
-- ARGV[2]   queue
-- ARGV[3]   consumer
-- ARGV[4…]  ids to look at; none: all
-- Result    {id …}

local queue, consumer = ARGV[2], ARGV[3]

return reply_of(function()
  local ids = {}
  for i = 4, #ARGV do
    append(ids, holds(queue, consumer, ARGV[i]) and ARGV[i] or nil)
  end
  local held = {}
  for _, id in ipairs(#ARGV > 3 and ids or held_by(queue, consumer, MAX_PER_CALL)) do
    append(held, attempt('HGET', JOB .. id, 'state') == 'processing' and id or nil)
  end
  return held
end)
