-- Ends jobs here that have arrived in another queue.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2…]  for each job two values: id, its number among the moves
-- Result    how many have ended
--
-- A job that has another number has been moved again meanwhile.

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  sample(now)
  local ended = {}
  for i = 2, #ARGV, 2 do
    local number = call('ZSCORE', MOVES, ARGV[i])
    if number and tonumber(number) == tonumber(ARGV[i + 1]) then
      append(ended, ARGV[i])
    end
  end
  account_dead(ended, -1)
  delete_jobs(ended)
  remove_dead(ended)
  count('moved', #ended)
  finish(now)
  return #ended
end)
