-- The same job again: at once behind all others, as if it was added again, or when a delay is over, before all others.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]   queue
-- ARGV[3]   consumer
-- ARGV[4]   id
-- ARGV[5]   delay, ms
-- ARGV[6]   another payload with uuid and queue_name, or ''
-- ARGV[7]   another extra, or ''
-- Result    'waiting', 'scheduled', or 'lost': then nothing was written
--
-- With a delay the job stays in jobs_dispatched, and its lease ends with the delay: whoever takes leases back puts it into the list
-- then, the program as well.

local queue, consumer, id, delay = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

-- The new payload with what describes the job and not the run.
local function payload_with(old)
  local known = object_of(old) and {} or nil
  if known then
    each_member(old, function(name, from, to)
      known[name] = string.sub(old, from, to)
    end)
  end
  local missing = known or {}
  each_member(ARGV[6], function(name)
    missing[name] = nil
  end)
  local members = {}
  for _, name in ipairs({'command', 'created_at'}) do
    if missing[name] then
      append(members, name, missing[name])
    end
  end
  return with_members(ARGV[6], members)
end

return reply_of(function()
  local at = moment()
  first_write()
  if not (is_held(queue, consumer, id) and is_whole(queue, id)) then
    return 'lost'
  end
  local record = record_of(id)
  call('HINCRBY', record, ATTEMPTS, 1)
  if ARGV[6] ~= '' then
    call('HSET', record, 'json', payload_with(call('HGET', record, 'json')))
  end
  local known = call('HGET', record, 'ferryman')
  if ARGV[7] ~= '' and (not known or extra_of(known)) then -- not what a migration has left there
    call('HSET', record, 'ferryman', ARGV[7])
  end
  if delay > 0 then
    lease(queue, id, later(at, (delay - LEASE) * 1000))
    let_go(queue, id)
    return 'scheduled'
  end
  call('LPUSH', queued(queue), id)
  call('ZREM', dispatched(queue), id)
  drop(queue, id)
  return 'waiting'
end)
