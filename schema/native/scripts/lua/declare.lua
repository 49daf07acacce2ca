-- Declares a queue: creates it, or updates its arguments. Refused ('order') for another priority order than its first one, and
-- ('lasts') where it was declared to last, has jobs, and would be temporary from now on: they would vanish with it. One that a
-- publish has made was never declared.
--
-- KEYS      the queue's, see _queue.lua
-- ARGV[1]   now
-- ARGV[2]   priority order of a new queue, 'ascending' or 'descending'
-- ARGV[3]   '1' if a queue that has the other order is to be refused, '' to take the order that stands
-- ARGV[4]   arguments, JSON text; '' keeps those that stand, with the settings that came from them
-- ARGV[5]   'on' or 'off': whether history is kept (_history.lua); '' as it stands
-- ARGV[6]   how many dead letters the queue keeps, 0 without limit, '' as it stands (_queue.lua, trim_dead)
-- ARGV[7]   how many bytes of messages they may have, likewise
-- ARGV[8]   for how many ms they are kept, likewise
-- ARGV[9…]  for each setting two values: name, and value or '' to remove it
-- Result    {1 if created, waiting and due, consumers with a lease, routes, 1 if the jobs of a queue that is temporary no more still
--           have TTLs: declare it again}

-- A queue that is temporary no more.
local function last_for_ever()
  local function persist(key)
    call('PERSIST', key)
  end
  for key = 1, 9 do
    persist(KEYS[key])
  end
  persist(MOVES)
  persist(LETTERS)
  persist(UNREPORTED)
  each_held(persist)
  call('HDEL', META, 'horizon')
  begin_ttl_renewal() -- finish() goes on with it
end

local function has_jobs()
  local found = call('EXISTS', WAITING, SCHEDULED, DEAD, DONE, BLOCKED) > 0
  each_held(function(key)
    found = found or call('EXISTS', key) == 1
  end)
  return found
end

-- Whether this declaration says of a setting that the queue is to have it.
local function gives(name)
  for i = 9, #ARGV, 2 do
    if ARGV[i] == name then
      return ARGV[i + 1] ~= ''
    end
  end
  return false
end

local function set(name, value)
  if value == '' then
    call('HDEL', META, name)
    queue[name] = nil
  else
    call('HSET', META, name, value)
    queue[name] = value
  end
end

return reply_of(function()
  local now = clock()
  open_queue()
  first_write()
  local created = 0
  if not queue.schema then
    create_queue(now, ARGV[2])
    created = 1
  elseif ARGV[3] == '1' and (queue.priority_order or 'ascending') ~= ARGV[2] then
    refuse('order', queue.priority_order or 'ascending')
  elseif not queue.expires and gives('expires') and is_declared() and has_jobs() then
    refuse('lasts')
  end
  if ARGV[4] ~= '' then
    local temporary, had_account = queue.expires, queue.max_bytes
    call('HSET', META, 'arguments', ARGV[4])
    for i = 9, #ARGV, 2 do
      set(ARGV[i], ARGV[i + 1])
    end
    if queue.max_bytes and not had_account then
      begin_accounting()
    end
    if temporary and not queue.expires then
      last_for_ever()
    elseif queue.expires and not temporary then
      forget_history()
    end
  else
    mark_declared()
  end
  if ARGV[5] == 'off' and queue.history ~= 'off' then
    forget_history()
    set_meta('history', 'off')
  elseif ARGV[5] == 'on' and queue.history then
    set_meta('history', nil)
    set_meta('next_sample', '0')
  end
  for i, name in ipairs({'dead_limit', 'dead_max_bytes', 'dead_ttl'}) do
    if ARGV[5 + i] ~= '' then
      call('HSET', META, name, ARGV[5 + i])
    end
  end
  sample(now)
  finish(now)
  local waiting, consumers = call('ZCARD', WAITING) + count_due(now), count_consumers(now)
  return {created, waiting, consumers, queue.routes or '0', queue.renewing and 1 or 0}
end)
