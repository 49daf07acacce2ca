-- The keyspace of pjq in use: what the scripts of compat/pjq/live.py share.
--
-- KEYS[1] of every script is the root of our side keys (compat/side.py), KEYS[2] what pjq's keys begin with, which may be
-- nothing, and ARGV[1] now.
--
--   <prefix><id>                     hash   json: the whole job, dispatched_at, started_at, worker_uuid, finished_at; of ours, where
--                                           needed: ferryman (what Celery knows), ferryman_attempts, ferryman_lapses
--   <prefix>jobs_queued:<queue>      list   ids; the newest at the head, popped from the tail
--   <prefix>jobs_dispatched:<queue>  zset   id -> s; the lease ends 9 s later, and then the job goes back to the tail
--   <prefix>jobs_processing:<queue>  zset   id -> s: accepted, and never taken back
--   <prefix>jobs_progress:<queue>    zset   id -> 0 to 1
--   <prefix>jobs_finished:<queue>    zset   id -> s
--   <prefix>workers_idle:<queue>     set    workers that get jobs by message: never one of ours
--   <prefix>workers_busy:<queue>     set
--   <prefix>workers_last_seen:<queue> zset  worker -> s; forgotten 9 s later
--   <root>leases:<queue>             zset   id -> the score that we gave it in jobs_dispatched, for as long as that can count
--   <root>cursors:<queue>            hash   consumer -> how many ids from the tail it need not look at again in this round
--
-- Theory. Only jobs_dispatched is ever taken back, so that is where a job of ours stands while it runs. Its score lies so that score
-- + 9 s is the end of the lease: then whoever comes first puts it back, a program of pjq or one of us. What was accepted stays in
-- jobs_processing for ever if its worker dies; so ours are accepted and finished in one unit. A job is its holder's while its score
-- in jobs_dispatched is the one that we gave it: another dispatch would have set another, acceptance and readmission remove it.
-- A retry with a delay is a lease without a holder that ends when the delay does.

local FOREIGN = KEYS[2]

local LEASE = 9000

-- How often a job was given up by its consumer to run again, and how often its consumer was lost.
local ATTEMPTS, LAPSES = 'ferryman_attempts', 'ferryman_lapses'

local function record_of(id)
  return FOREIGN .. id
end

local function queued(queue)
  return FOREIGN .. 'jobs_queued:' .. queue
end

local function dispatched(queue)
  return FOREIGN .. 'jobs_dispatched:' .. queue
end

local function processing(queue)
  return FOREIGN .. 'jobs_processing:' .. queue
end

local function progress_of(queue)
  return FOREIGN .. 'jobs_progress:' .. queue
end

local function finished(queue)
  return FOREIGN .. 'jobs_finished:' .. queue
end

local function leases(queue)
  return SIDE .. 'leases:' .. queue
end

local function cursors(queue)
  return SIDE .. 'cursors:' .. queue
end

-- Times: whole seconds and microseconds, which is how precise the program is

-- This moment.
local function moment()
  if ARGV[1] ~= '' then
    local ms = tonumber(ARGV[1])
    return {seconds = math.floor(ms / 1000), micros = ms % 1000 * 1000}
  end
  local time = redis.call('TIME')
  return {seconds = tonumber(time[1]), micros = tonumber(time[2])}
end

-- So many microseconds after a moment, or before it.
local function later(at, micros)
  local all = at.micros + micros
  return {seconds = at.seconds + math.floor(all / 1000000), micros = all % 1000000}
end

local function milliseconds(at)
  return at.seconds * 1000 + math.floor(at.micros / 1000)
end

-- Seconds, as Python shows a float.
local function seconds_text(at)
  local fraction = string.gsub(string.format('%06d', at.micros), '0+$', '')
  return string.format('%.0f', at.seconds) .. '.' .. (fraction == '' and '0' or fraction)
end

-- ISO 8601 in UTC, as Python shows it: without a fraction where that is 0.
local function iso_text(at)
  return calendar(at.seconds) .. (at.micros > 0 and string.format('.%06d', at.micros) or '') .. 'Z'
end

-- The score in jobs_dispatched of what is leased for so many ms from a moment: 9 s before the end, but for a shorter lease the
-- moment itself.
local function lease_score(at, ms)
  return later(at, math.max(ms - LEASE, 0) * 1000)
end

-- JSON: changed as text, because decoding and encoding it in Lua loses long numbers, empty lists and the order

-- Calls `see(name, from, to)` for each member of an object: its name, and where its value stands.
local function each_member(text, see)
  local at = string.find(text, '{', 1, true) + 1
  while true do
    at = string.find(text, '["}]', at)
    if string.sub(text, at, at) == '}' then
      return
    end
    local last = string_end(text, at)
    local name = string.sub(text, at + 1, last - 1)
    if string.find(name, '\\', 1, true) then
      local _, names = decode_json('["' .. name .. '"]')
      name = names[1]
    end
    local from = string.find(text, '[^%s:]', last + 1)
    local to = value_end(text, from)
    see(name, from, to)
    at = to + 1
  end
end

-- Whether one of these members, {name, text …}, may stand in an object already. Nobody writes their names with escapes; one who did
-- would have it twice, and readers take the last.
local function has_any(text, members)
  for i = 1, #members, 2 do
    if string.find(text, '"' .. members[i] .. '"', 1, true) then
      return true
    end
  end
  return false
end

-- An object with members set to JSON texts, {name, text, name, text …}: in their places, new ones at the end, as a dict does.
local function with_members(text, members)
  local texts, known, pieces, from_here = {}, {}, {}, 1
  for i = 1, #members, 2 do
    texts[members[i]] = members[i + 1]
  end
  if has_any(text, members) then
    each_member(text, function(name, from, to)
      if texts[name] then
        known[name] = true
        append(pieces, string.sub(text, from_here, from - 1), texts[name])
        from_here = to + 1
      end
    end)
  end
  append(pieces, string.sub(text, from_here, string.find(text, '}%s*$') - 1))
  local comma = string.find(text, '^%s*{%s*}') and '' or ','
  for i = 1, #members, 2 do
    if not known[members[i]] then
      append(pieces, comma .. '"' .. members[i] .. '":', members[i + 1])
      comma = ','
    end
  end
  return table.concat(pieces) .. '}'
end

-- A JSON text as a table; nil for one that is no object, or that its worker could not read: not JSON, or not UTF-8.
local function object_of(text)
  local fine, found = decode_json(text)
  if not fine or type(found) ~= 'table' or not string.find(text, '^%s*{') then
    return nil
  end
  if string.find(text, '[\128-\255]') then
    local rest = string.gsub(text, '[\240-\244][\128-\191][\128-\191][\128-\191]', '.')
    rest = string.gsub(rest, '[\224-\239][\128-\191][\128-\191]', '.')
    rest = string.gsub(rest, '[\194-\223][\128-\191]', '.')
    local is_strange = string.find(text, '\237[\160-\191]') or string.find(text, '\224[\128-\159]')
    if is_strange or string.find(rest, '[\128-\255]') then
      return nil
    end
  end
  return found
end

-- A text as JSON.
local function quoted(text)
  return string.find(text, '[%c"\\\128-\255]') and cjson.encode(text) or '"' .. text .. '"'
end

-- What Celery knows of a job, as a table; nil for what is no object, or what a migration has left in that field.
local function extra_of(text)
  local found = text and object_of(text)
  return found and found.as_of == nil and found or nil
end

-- The name by which a job is selected.
local function name_of(extra, command, queue)
  return extra and type(extra.task) == 'string' and extra.task or command or queue
end

-- Leases

-- Whether a job stands in jobs_dispatched as we have put it there.
local function is_leased(queue, id)
  local score = call('ZSCORE', dispatched(queue), id)
  return score and score == call('ZSCORE', leases(queue), id)
end

-- Whether a consumer still holds a job.
local function is_held(queue, consumer, id)
  return holds(queue, consumer, id) and is_leased(queue, id)
end

-- Puts a job into jobs_dispatched.
local function lease(queue, id, at)
  call('ZADD', dispatched(queue), seconds_text(at), id)
  call('ZADD', leases(queue), seconds_text(at), id)
end

-- Nobody of ours holds a job any more.
local function drop(queue, id)
  let_go(queue, id)
  call('ZREM', leases(queue), id)
end

-- A queue without consumers of ours is served for as long as jobs of it are leased: a retry may be delayed for days.
local function keep_served(queue)
  local is_served = call('EXISTS', SIDE .. 'consumers:' .. queue, leases(queue)) > 0
  call(is_served and 'SADD' or 'SREM', SIDE .. 'queues', queue)
end

-- A consumer has gone.
local function leave(queue, consumer)
  call('HDEL', cursors(queue), consumer)
  end_lease(queue, consumer)
  keep_served(queue)
end

-- Puts a job back, to run next.
local function give_back(queue, id)
  call('RPUSH', queued(queue), id)
  call('ZREM', dispatched(queue), id)
  drop(queue, id)
end

-- Jobs that a consumer of ours holds, in the order in which they go back: what was taken first is pushed last, and runs next.
local function in_order_of_return(queue, ids)
  local scores = {}
  for _, id in ipairs(ids) do
    scores[id] = tonumber(call('ZSCORE', leases(queue), id) or 0)
  end
  table.sort(ids, function(a, b)
    return scores[a] > scores[b] or scores[a] == scores[b] and a > b
  end)
  return ids
end

-- Ends

-- Accepts a job and finishes it, in one: `outcome` are the members that its worker reports, {name, JSON text …}.
local function finish(queue, at, worker, id, outcome)
  local record = record_of(id)
  local known = call('HMGET', record, 'json', 'dispatched_at')
  local started, done = known[2] or iso_text(at), seconds_text(at)
  if known[1] then
    local members = {'dispatched_at', quoted(started), 'started_at', quoted(started), 'finished_at', done}
    for _, each in ipairs(outcome) do
      append(members, each)
    end
    local is_object, json = pcall(with_members, known[1], members)
    if is_object and string.find(json, '^%s*{') then
      call('HSET', record, 'json', json)
    end
  end
  call('HSET', record, 'started_at', started, 'worker_uuid', worker, 'finished_at', done)
  call('ZADD', finished(queue), done, id)
  call('HDEL', record, ATTEMPTS, LAPSES)
  call('ZREM', processing(queue), id)
  call('ZREM', progress_of(queue), id)
  call('ZREM', dispatched(queue), id)
  drop(queue, id)
end

-- Whether a held job still has a payload. One without is taken out: the program would die at it when it came back.
local function is_whole(queue, id)
  if attempt('HEXISTS', record_of(id), 'json') == 1 then
    return true
  end
  call('ZREM', dispatched(queue), id)
  drop(queue, id)
  return false
end

-- The program's clockwork

-- Ends a job that has cost us too many workers.
local function fail_as_lost(queue, at, worker, id, lapses)
  local reason = 'delivery_limit: given out ' .. lapses .. ' times, and each time its worker was lost'
  finish(queue, at, worker, id, {'exitcode', '1', 'stdout', '""', 'stderr', quoted(reason)})
end

-- Puts back what its consumer was lost with, or fails it if that has happened more than `limit` times.
local function recover(queue, at, id, limit)
  local holder = holder_of(queue, id)
  local lapses = holder and attempt('HINCRBY', record_of(id), LAPSES, 1) or 0
  if lapses > limit and is_whole(queue, id) then
    fail_as_lost(queue, at, holder, id, lapses)
  else
    give_back(queue, id)
  end
end

-- Puts back what was dispatched and not accepted in time, at most `most` jobs; returns how many.
local function readmit(queue, at, limit, most)
  local over = seconds_text(later(at, -LEASE * 1000))
  local ids = call('ZREVRANGEBYSCORE', dispatched(queue), over, '-inf', 'LIMIT', 0, most)
  for _, id in ipairs(ids) do
    recover(queue, at, id, limit)
  end
  if #ids < most then
    call('ZREMRANGEBYSCORE', leases(queue), '-inf', over)
  end
  return #ids
end

-- Whether a job stands in another container than the list.
local function is_elsewhere(queue, id)
  for _, container in ipairs({dispatched(queue), processing(queue), finished(queue)}) do
    if attempt('ZSCORE', container, id) then
      return true
    end
  end
  return false
end

-- Puts back what consumers of ours hold whose lease has ended, at most `most` jobs and a few more; returns how many.
local function reclaim_held(queue, at, limit, most)
  local count = 0
  for _, consumer in ipairs(call('ZRANGEBYSCORE', SIDE .. 'consumers:' .. queue, '-inf', milliseconds(at), 'LIMIT', 0, most)) do
    local ids = in_order_of_return(queue, held_by(queue, consumer, most - count))
    for _, id in ipairs(ids) do
      if is_leased(queue, id) then
        recover(queue, at, id, limit)
      else
        if not is_elsewhere(queue, id) and attempt('HEXISTS', record_of(id), 'json') == 1 then
          call('HINCRBY', record_of(id), LAPSES, 1) -- the program was faster: it waits again
        end
        drop(queue, id)
      end
    end
    count = count + #ids
    if count >= most then
      break
    end
    leave(queue, consumer)
  end
  return count
end

-- Forgets workers that have given no sign for 9 s, at most `most`; returns how many. The first programs in JavaScript have keys of
-- other types: what is not of the type stays.
local function purge_workers(queue, at, most)
  local seen = FOREIGN .. 'workers_last_seen:' .. queue
  local over = seconds_text(later(at, -LEASE * 1000))
  local workers = attempt('ZREVRANGEBYSCORE', seen, over, '-inf', 'LIMIT', 0, most) or {}
  for _, worker in ipairs(workers) do
    attempt('SREM', FOREIGN .. 'workers_idle:' .. queue, worker)
    attempt('SREM', FOREIGN .. 'workers_busy:' .. queue, worker)
    call('ZREM', seen, worker)
  end
  return #workers
end

-- All three; whether there may be more to do.
local function tend(queue, at, limit)
  local readmitted = readmit(queue, at, limit, MAX_PER_CALL)
  local reclaimed = reclaim_held(queue, at, limit, MAX_PER_CALL)
  local purged = purge_workers(queue, at, MAX_PER_CALL)
  return math.max(readmitted, reclaimed, purged) >= MAX_PER_CALL
end

-- Deletes the hash of a job that has left this queue, unless it stands in another container of a queue that is known here, or
-- says that it is of another queue.
local function discard(queue, id)
  local record = record_of(id)
  local json = attempt('HGET', record, 'json')
  local object = json and object_of(json)
  if object and type(object.queue_name) == 'string' and object.queue_name ~= queue then
    return
  end
  if json and not is_elsewhere(queue, id) then
    call('DEL', record)
  end
end
