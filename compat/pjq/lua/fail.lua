-- Ends a job that has failed: accepts and finishes it in one, with an exit code. pjq knows no other attempts.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]   queue
-- ARGV[3]   consumer
-- ARGV[4]   id
-- ARGV[5]   its stderr, a JSON string
-- Result    'failed', or 'lost': then nothing was written

local queue, consumer, id = ARGV[2], ARGV[3], ARGV[4]

return reply_of(function()
  local at = moment()
  first_write()
  if not (is_held(queue, consumer, id) and is_whole(queue, id)) then
    return 'lost'
  end
  finish(queue, at, consumer, id, {'exitcode', '1', 'stdout', '""', 'stderr', ARGV[5]})
  return 'failed'
end)
