-- Ends jobs that are done: accepts and finishes each in one.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]   queue
-- ARGV[3]   consumer
-- ARGV[4…]  for each job its id and its stdout, a JSON string
-- Result    for each job 'completed', or 'lost': then nothing was written

local queue, consumer = ARGV[2], ARGV[3]

return reply_of(function()
  local at, done = moment(), {}
  first_write()
  for i = 4, #ARGV, 2 do
    local is_ours = is_held(queue, consumer, ARGV[i]) and is_whole(queue, ARGV[i])
    if is_ours then
      finish(queue, at, consumer, ARGV[i], {'exitcode', '0', 'stdout', ARGV[i + 1], 'stderr', '""'})
    end
    append(done, is_ours and 'completed' or 'lost')
  end
  return done
end)
