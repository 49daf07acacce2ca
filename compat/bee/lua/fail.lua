-- Ends an attempt that has failed, or that is to be repeated: bee's retries decide whether the job runs again. All of its retries
-- are delayed.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue
-- ARGV[4]   id
-- ARGV[5]   message
-- ARGV[6]   '1' if no attempt may follow
-- ARGV[7]   delay of the next attempt, ms; '' for that of the job's options
-- ARGV[8]   data that the job has from then on, JSON, stored as it is (see put.lua); '' for the same
-- ARGV[9]   what Celery knows of it from then on, '' for the same
-- Result    'scheduled', 'failed', or 'lost': it was not the consumer's any more

local queue, id, message, data = ARGV[3], ARGV[4], ARGV[5], ARGV[8]

-- The delay of the next attempt, with the number that it has.
local function delay_of(options, number)
  if ARGV[7] ~= '' then
    return tonumber(ARGV[7])
  end
  return tonumber(options.retryDelay) * (options.progressiveDelay and options.progressiveDelay ~= cjson.null and number or 1)
end

return reply_of(function()
  local now, record = clock(), record_of(id)
  first_write()
  if not is_held(queue, id) then
    return 'lost'
  end
  if data ~= '' and not encoded_again(data) then
    refuse('refused', 'its new data is not JSON that bee can read')
  end
  local found = call('HMGET', record, 'options', 'retries')
  local options, retries = options_of(found[1]), tonumber(found[2]) or 0
  local most = tonumber(options.retries)
  call('HSET', record, 'options', cjson.encode(options))
  note(now, id, 'exception', {message = message})
  if ARGV[6] == '1' or retries >= most then
    local is_first = ARGV[6] == '1' or most == 0
    fail(now, queue, id, options, is_first and message or 'No more retries available')
    unlock(queue, id, HIVE .. ':' .. queue)
    return 'failed'
  end
  if data ~= '' then
    call('HSET', record, 'data', data)
  end
  if ARGV[9] ~= '' then
    call('HSET', record, 'ferryman', ARGV[9])
  end
  call('HSET', record, 'retries', retries + 1, 'status', 'retried')
  delay(now, queue, id, delay_of(options, retries + 1))
  unlock(queue, id, HIVE .. ':' .. queue)
  return 'scheduled'
end)
