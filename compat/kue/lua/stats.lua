-- What kue's own statistics say of all types. Changes nothing.
--
-- KEYS, ARGV[1]: see _common.lua
-- Result   {inactive, delayed, active, complete, failed, work time in ms, {type, …}}

return reply_of(function()
  local reply = {}
  for _, state in ipairs({'inactive', 'delayed', 'active', 'complete', 'failed'}) do
    append(reply, call('ZCARD', by_state(state)))
  end
  append(reply, call('GET', P .. 'stats:work-time') or '0')
  append(reply, call('SMEMBERS', P .. 'job:types'))
  return reply
end)
