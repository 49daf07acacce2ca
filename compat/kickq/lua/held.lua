-- Which jobs a consumer holds; those that somebody else has ended or deleted meanwhile are not among them. Changes nothing.
--
-- KEYS, and ARGV[1] to ARGV[3]: see _common.lua
-- ARGV[4]   queue
-- ARGV[5]   consumer
-- Result    {id …}

local queue, consumer = ARGV[4], ARGV[5]

return reply_of(function()
  local held = {}
  for _, id in ipairs(held_by(queue, consumer, MAX_PER_CALL)) do
    append(held, attempt('HGET', JOB .. id, 'state') == 'processing' and id or nil)
  end
  return held
end)
