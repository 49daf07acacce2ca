-- Notes how far a job is. As with kue its ttl begins anew, if it is not over yet.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]  type
-- ARGV[3]  consumer
-- ARGV[4]  id
-- ARGV[5]  percent
-- ARGV[6]  data as JSON, '' for none
-- ARGV[7]  '1' if kue would keep the data
-- Result   1; 0 if the job is not this consumer's any more

local queue, consumer, id, data = ARGV[2], ARGV[3], ARGV[4], ARGV[6]

return reply_of(function()
  local now = clock()
  first_write()
  local job = held_job(queue, consumer, id, now)
  if not job then
    return 0
  end
  call('HSET', job_key(id), 'progress', ARGV[5], 'updated_at', now)
  if ARGV[7] == '1' and era() >= V0_8 then
    call('HSET', job_key(id), 'progress_data', data)
  end
  local ttl = ttl_of(job)
  if ttl and tonumber(call('ZSCORE', by_state('active'), member_of(id)) or 0) > now then
    call('ZADD', by_state('active'), now + ttl, member_of(id))
  end
  publish(id, 'progress', ',' .. ARGV[5] .. (era() >= V0_8 and ',' .. (data == '' and 'null' or data) or ''))
  return 1
end)
