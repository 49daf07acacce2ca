-- Stores a job as a client of bee does: it waits for its dependencies, for its time, or for a worker.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- ARGV[3]   queue
-- ARGV[4]   id
-- ARGV[5]   data, JSON
-- ARGV[6]   options, a JSON object of all nine
-- ARGV[7]   tags, a JSON list
-- ARGV[8]   id of the parent, '' without
-- ARGV[9]   what Celery knows of the job, '' for nothing
-- ARGV[10]  publication, '' without
-- bee stores data as Lua writes it again: an empty list as an object, numbers of 14 digits. What Celery has put is stored as it came,
-- so that its own tasks get back what they were called with; bee's workers see the same in both cases, since a pop writes it again.
--
-- Result    the id; that of the first job for a publication that is repeated. Refused: a known id, a cancelled parent, text that is
--           not JSON. Nothing is written then.

local queue, id, parent, publication = ARGV[3], ARGV[4], ARGV[8], ARGV[10]

local UNFINISHED = {new = true, queued = true, running = true, retried = true}

-- The jobs that this one asks to wait for: those named, and those that have all its tags.
local function wanted(options, tags)
  local ids = {}
  for _, other in ipairs(type(options.dependencies) == 'table' and options.dependencies or {}) do
    append(ids, other)
  end
  if options.dependenciesOnTags and #tags > 0 then
    local keys = {}
    for _, tag in ipairs(tags) do
      append(keys, BEE .. 's:tags:' .. tag)
    end
    for _, other in ipairs(call('SINTER', unpack(keys))) do
      append(ids, other)
    end
  end
  return ids
end

-- Lets the job wait for all of those that have yet to end. Whether there are any.
local function depend(ids)
  local waits = false
  for _, other in ipairs(ids) do
    local found = attempt('HMGET', record_of(other), 'status', 'dependants')
    if found and UNFINISHED[found[1]] then
      local dependants = list_of(found[2])
      append(dependants, id)
      call('SADD', BEE .. 's:dependencies:' .. id, other)
      call('HSET', record_of(other), 'dependants', cjson.encode(dependants))
      waits = true
    end
  end
  return waits
end

return reply_of(function()
  local now, known = clock(), published_as(publication)
  if known then
    return known
  end
  local data, options, tags = encoded_again(ARGV[5]), decoded(ARGV[6]), decoded(ARGV[7])
  if not data then
    refuse('refused', 'its data is not JSON that bee can read: no NaN, no half of a surrogate pair, nothing nested deeper than 1000')
  elseif call('EXISTS', record_of(id)) == 1 then
    refuse('refused', 'Job ' .. id .. ' already exists')
  elseif parent ~= '' and call('HGET', record_of(parent), 'status') == 'canceled' then
    refuse('refused', 'its parent ' .. parent .. ' is cancelled')
  end
  data = ARGV[9] == '' and data or ARGV[5]
  local record = record_of(id)
  connect()
  local waits = depend(wanted(options, tags))
  if parent ~= '' then
    call('HSET', record, 'parent', parent)
    call('SADD', BEE .. 's:' .. parent .. ':children', id)
  end
  call('HSET', record, 'jid', id, 'data', data, 'options', cjson.encode(options), 'worker', '', 'queue', queue, 'status', 'new',
    'submitted', now, 'retries', 0, 'tags', cjson.encode(tags))
  if ARGV[9] ~= '' then
    call('HSET', record, 'ferryman', ARGV[9])
  end
  for _, tag in ipairs(tags) do
    call('SADD', BEE .. 's:tags:' .. tag, id)
  end
  note(now, id, 'submitted')
  local ms = tonumber(options.delay) or 0
  if waits then
    note(now, id, 'dependancyWaiting')
  elseif ms > 0 then
    delay(now, queue, id, ms)
  else
    enqueue(now, queue, id, options)
  end
  remember(publication, id)
  return id
end)
