-- Gives a consumer up to n jobs of one type, in kue's order; first promotes what is due, fails what runs past its ttl, and gives back
-- what lapsed consumers held. Takes a wake token for each job it takes, and all that are too many if it finds none.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]   type
-- ARGV[3]   consumer
-- ARGV[4]   n; 0 does the rest only
-- ARGV[5]   lease, ms from now
-- ARGV[6]   after how many lapses of its consumers a job fails, '' never
-- ARGV[7]   bytes of payloads that the reply may have; a job that has more comes alone
-- ARGV[8]   what the worker's name begins with, kue:<host>:<pid>
-- ARGV[9]   '1' if ARGV[10…] are the only tasks that the consumer knows
-- ARGV[10…] names of tasks
-- Result    {now, next event ms, {task left for others, …}, and each job as described() has it}
--
-- A task is named by `task` in the field ferryman, else by the type. Jobs of others stay, for whoever knows them. What can't be run
-- leaves the index: what is no job is deleted, as kue does; what has another state, or type, has its place there; what has no
-- readable payload fails.

local queue, consumer, room, lease, space = ARGV[2], ARGV[3], math.min(tonumber(ARGV[4]), MAX_PER_CALL), tonumber(ARGV[5]), tonumber(ARGV[7])
local limit = tonumber(ARGV[6]) or math.huge
local INDEX = by_type(queue, 'inactive')

-- Jobs that one call promotes, fails or gives back at most, beside those that it takes.
local CHORES = 200

local wanted = ARGV[9] == '1' and set_from(10)

-- Whether a payload can be read: kue's workers lose a job whose payload can't be. What is nested too deep for Lua, or has half of a
-- character's code, is JSON all the same.
local function is_readable(data)
  if #data > CHECKED_BYTES then
    return true
  end
  local fine, problem = pcall(cjson.decode, data)
  return fine or string.find(problem, 'nested', 1, true) ~= nil or string.find(problem, 'unicode escape', 1, true) ~= nil
end

-- Takes a member out of the index that says what is not so of its job.
local function correct(job, member)
  if job.type ~= queue and job.state == 'inactive' and not call('ZSCORE', by_type(job.type, 'inactive'), member) then
    call('ZADD', by_type(job.type, 'inactive'), priority_of(job), member)
    call('LPUSH', tokens_of(job.type), '1')
  end
  call('ZREM', INDEX, member)
  if job.state ~= 'inactive' then
    call('ZREM', by_state('inactive'), member)
  end
end

local function activate(job, member, now)
  local key, own = job_key(job.id), member_of(job.id)
  local worker = ARGV[8] .. ':' .. queue .. ':' .. ordinal(consumer)
  hold(queue, consumer, job.id)
  call('ZADD', by_state('active'), active_score(job, now), own)
  call('ZADD', by_type(queue, 'active'), priority_of(job), own)
  call('HSET', key, 'started_at', now, 'workerId', worker, 'updated_at', now, 'state', 'active')
  call('ZREM', by_state('inactive'), member)
  call('ZREM', INDEX, member)
  publish(job.id, 'start', ',' .. quoted(queue) .. ',null')
end

-- Looks at the first jobs of the index, `from` those that stay, until `room` are taken. Adds them to `taken`. Returns the bytes of
-- their payloads, how many members have left the index, and whether it stopped before the index's end.
local function take_from(from, now, taken, used)
  local seen, gone = 0, 0
  while #taken < room and seen < MAX_PER_CALL do
    local members = call('ZRANGE', INDEX, from, from + math.max(room - #taken, 10) - 1)
    if #members == 0 then
      return used, gone, false
    end
    for _, member in ipairs(members) do
      if #taken == room then
        return used, gone, true
      end
      seen = seen + 1
      local id = id_of(member)
      local job = id and read(id)
      if not id then
        call('ZREM', INDEX, member)
        gone = gone + 1
      elseif not job then
        delete_invalid(id, member, queue)
        gone = gone + 1
      elseif job.type ~= queue or (job.state or 'inactive') ~= 'inactive' then
        correct(job, member)
        gone = gone + 1
      else
        local content = call('HMGET', job_key(id), 'data', 'ferryman')
        local data, extra = content[1] or '{}', content[2]
        local task = wanted and (celery_word(extra, 'task') or queue)
        if wanted and not wanted[task] then
          note_unknown(task)
          from = from + 1
        elseif not is_readable(data) then
          job.state = 'inactive'
          local text = 'the payload is not JSON'
          fail_attempt(job, now, text, text, {is_final = true})
          call('ZREM', INDEX, member)
          gone = gone + 1
        else
          if #taken > 0 and used + #data > space then
            return used, gone, true
          end
          used, gone = used + #data, gone + 1
          activate(job, member, now)
          append(taken, described(job, data, extra))
        end
      end
    end
  end
  return used, gone, true
end

-- Wake tokens for jobs that have gone. There must never be fewer than jobs that wait.
local function take_tokens(gone, found_none)
  local list = tokens_of(queue)
  local surplus = call('LLEN', list) - call('ZCARD', INDEX)
  for _ = 1, math.min(surplus, found_none and MAX_PER_CALL or gone) do
    call('LPOP', list)
  end
end

-- The moment after now at which the next one of an index of times comes.
local function first_after(index, now)
  local found = call('ZRANGEBYSCORE', index, '(' .. number_text(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  local score = tonumber(found[2])
  return score and score < math.huge and score or math.huge
end

-- When the consumer should take again if nothing wakes it.
local function next_event(now, is_blocked)
  local event = math.min(now + lease, first_after(SIDE .. 'consumers:' .. queue, now))
  if era() < V0_9 then
    event = call('ZCARD', by_state('delayed')) > 0 and math.min(event, now + 1000) or event
  else
    event = math.min(event, first_after(by_state('delayed'), now))
  end
  return is_blocked and math.min(event, now + 50) or event
end

return reply_of(function()
  local now = clock()
  first_write()
  lease_to(queue, consumer, now + lease) -- first of all: it must not lapse itself in this call
  local promoted, is_blocked = promote(now, CHORES)
  local expired = expire(now, CHORES, false)
  local reclaimed = reclaim_lapsed(queue, now, CHORES, limit)
  local taken, used, gone, more = {}, 0, 0, false
  if room > 0 then
    used, gone, more = take_from(0, now, taken, 0)
    if #taken == 0 and more and gone == 0 then
      -- The head is full of jobs for others: now here, now there, so that all are looked at in the end.
      local rest = call('ZCARD', INDEX) - MAX_PER_CALL
      used, gone, more = take_from(MAX_PER_CALL + now % math.max(1, rest), now, taken, 0)
      more = more and gone > 0
    end
    take_tokens(gone, #taken == 0 and not more)
  end
  local busy = more or promoted == CHORES or reclaimed == CHORES
  local reply = {number_text(now), number_text(busy and now or math.ceil(next_event(now, is_blocked))), unknown}
  for _, job in ipairs(taken) do
    append(reply, job)
  end
  return reply
end)
