-- Ends jobs that are done, each with its result.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue
-- ARGV[4…]  for each job its id and its result, JSON, '' for none
-- Result    for each job 'completed', or 'lost': it was not the consumer's any more

local queue = ARGV[3]

return reply_of(function()
  local now, outcomes = clock(), {}
  first_write()
  for i = 4, #ARGV, 2 do
    local id, outcome = ARGV[i], 'lost'
    if is_held(queue, id) then
      local options = options_of(call('HGET', record_of(id), 'options'))
      call('HSET', record_of(id), 'result', encoded_again(ARGV[i + 1]) or 'null', 'options', cjson.encode(options), 'status',
        'completed')
      note(now, id, 'completed')
      finish(now, queue, id, options, 'completed')
      unlock(queue, id, HIVE .. ':' .. queue)
      outcome = 'completed'
    end
    append(outcomes, outcome)
  end
  return outcomes
end)
