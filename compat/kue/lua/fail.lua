-- Ends an attempt that has failed.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]  type
-- ARGV[3]  consumer
-- ARGV[4]  id
-- ARGV[5]  the message, one line
-- ARGV[6]  the whole text
-- ARGV[7]  '1' if no other attempt follows
-- ARGV[8]  after how many ms the next attempt begins; '' as the job's backoff says
-- ARGV[9]  the new data, '' as before
-- ARGV[10] the new field ferryman, '' as before
-- Result   'waiting', 'scheduled', 'failed' or 'lost'

local queue, consumer, id = ARGV[2], ARGV[3], ARGV[4]

return reply_of(function()
  local now = clock()
  first_write()
  local job = held_job(queue, consumer, id, now)
  if not job then
    return 'lost'
  end
  if ARGV[9] ~= '' then
    call('HSET', job_key(id), 'data', ARGV[9])
  end
  if ARGV[10] ~= '' then
    call('HSET', job_key(id), 'ferryman', ARGV[10])
  end
  local state = fail_attempt(job, now, ARGV[5], ARGV[6], {is_final = ARGV[7] == '1', delay = tonumber(ARGV[8])})
  let_go(queue, id, state == 'failed')
  return OUTCOMES[state]
end)
