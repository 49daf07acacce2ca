-- Stores jobs that come from another queue, each once however often they are brought. A queue that was deleted meanwhile is made anew.
--
-- KEYS      the queue's, see _queue.lua
-- KEYS[15]  the highest number that has come from that queue
-- ARGV[1]   now
-- ARGV[2]   priority order of a queue created here
-- ARGV[3]   ms for which the number is remembered
-- ARGV[4…]  for each job, in the order of their numbers: its number, id, priority, due ms or '' if it waits, how many words of its hash
--           follow, and those
-- Result    how many of them the queue has, the first ones: it is at its greatest length and refuses the others. Nothing comes behind what
--           was refused

local MEMORY = KEYS[15]

-- The arguments as jobs, those only that have not been stored before; and how many those are that have been.
local function new_jobs()
  local last = tonumber(call('GET', MEMORY) or nil) or -1
  local jobs, stored, i = {}, 0, 4
  while i <= #ARGV do
    local number, words = tonumber(ARGV[i]), tonumber(ARGV[i + 4])
    if number > last then
      local id = ARGV[i + 1]
      if call('EXISTS', JOB .. id) == 1 then -- an exchange gives the same message to several queues, under one id
        id = id .. '-' .. ARGV[i]
      end
      append(jobs, {
        id = id, number = ARGV[i], priority = tonumber(ARGV[i + 2]), due = tonumber(ARGV[i + 3]),
        hash = {unpack(ARGV, i + 5, i + 4 + words)},
      })
    else
      stored = stored + 1
    end
    i = i + 5 + words
  end
  return jobs, stored
end

-- The first of the jobs, as many as the queue has room for.
local function those_that_fit(jobs)
  if queue.overflow ~= 'reject-publish' then
    return jobs
  end
  local fit, number, bytes = {}, room()
  for i, job in ipairs(jobs) do
    local message = field(job.hash, 'message')
    bytes = bytes - (message and body_bytes(message) or #(field(job.hash, 'payload') or ''))
    if i > number or bytes < 0 then
      break
    end
    fit[i] = job
  end
  return fit
end

return reply_of(function()
  local now = clock()
  open_queue()
  local brought, stored = new_jobs()
  local jobs = those_that_fit(brought)
  if #jobs == 0 then
    return stored
  end
  if not queue.schema then
    create_queue(now, ARGV[2])
    mark_declared()
  end
  call('HINCRBY', META, 'sequence', 0) -- first of all a write that needs memory: a full server is to refuse it (rule 2)
  sample(now)
  store(jobs)
  call('SET', MEMORY, jobs[#jobs].number, 'PX', ARGV[3])
  if queue.max_length or queue.max_bytes then
    drop_head(now, #jobs + MAX_PER_CALL)
  end
  local _, left = finish(now)
  if left then
    for _, job in ipairs(jobs) do
      call('PEXPIRE', JOB .. job.id, left)
      local unique = field(job.hash, 'unique')
      if unique then
        call('PEXPIRE', UNIQUE .. unique, left)
      end
    end
  end
  return stored + #jobs
end)
