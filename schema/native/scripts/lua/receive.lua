-- Stores jobs that come from another queue, each once however often they are brought. A queue that was deleted meanwhile is made anew.
--
-- KEYS      the queue's, see _queue.lua
-- KEYS[15]  the highest number that has come from that queue
-- ARGV[1]   now
-- ARGV[2]   priority order of a queue created here
-- ARGV[3]   ms for which the number is remembered
-- ARGV[4…]  for each job, in the order of their numbers: its number, id, priority, due ms or '' if it waits, how many words of its hash
--           follow, and those
-- Result    {'overflow'}: the queue is at its greatest length and refuses more. Nothing is stored then. Else {'stored'}

local MEMORY = KEYS[15]

local highest

-- The arguments as jobs, those only that have not been stored before.
local function new_jobs()
  local last = tonumber(call('GET', MEMORY) or nil) or -1
  local jobs, i = {}, 4
  while i <= #ARGV do
    local number, words = tonumber(ARGV[i]), tonumber(ARGV[i + 4])
    if number > last then
      local id = ARGV[i + 1]
      if call('EXISTS', JOB .. id) == 1 then -- an exchange gives the same message to several queues, under one id
        id = id .. '-' .. ARGV[i]
      end
      append(jobs, {id = id, priority = tonumber(ARGV[i + 2]), due = tonumber(ARGV[i + 3]), hash = {unpack(ARGV, i + 5, i + 4 + words)}})
    end
    highest = ARGV[i]
    i = i + 5 + words
  end
  return jobs
end

local function bytes_to_come(jobs)
  local bytes = 0
  for _, job in ipairs(queue.max_bytes and jobs or {}) do
    local message = field(job.hash, 'message')
    bytes = bytes + (message and body_bytes(message) or #(field(job.hash, 'payload') or ''))
  end
  return bytes
end

return reply_of(function()
  local now = clock()
  open_queue()
  local jobs = new_jobs()
  if #jobs > 0 then
    if queue.overflow == 'reject-publish' and is_full(#jobs, bytes_to_come(jobs)) then
      return {'overflow'}
    end
    if not queue.schema then
      create_queue(now, ARGV[2])
      mark_declared()
    end
    call('HINCRBY', META, 'sequence', 0) -- first of all a write that needs memory: a full server is to refuse it (rule 2)
    sample(now)
    store(jobs)
    call('SET', MEMORY, highest, 'PX', ARGV[3])
    if queue.max_length or queue.max_bytes then
      drop_head(now, #jobs + MAX_PER_CALL)
    end
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
  return {'stored'}
end)
