-- History: what every script begins with that counts something, after _queue.lua.
--
-- times              string  64-bit numbers for BITFIELD: for waits, then for runs, how many took at most 2^0, 2^1 … 2^27 ms, how
--                            many took longer, and the sum, ms; since the queue was made. Of jobs that are taken or acked 16 and
--                            more at once, some are timed, and count for all
-- history            hash    for each length of slots: when the open one began, and the totals at that time; with a TTL
-- history:<minutes>  list    the closed slots of one length, of which so many are kept (STEPS), the newest last; with a TTL
--
-- A slot is closed by the first script that counts in a later one. So all that it counts has happened in it, and its depths
-- have held until then: a queue in which nothing happens has no slots, and nobody need look at it. ../../history.py reads them.
-- A slot's entry has five groups, with ';' between them: when it began, ms, depths (waiting and due, scheduled for later, held, dead), and
-- what has come in the slot to the counters, to the waits and to the runs; numbers with ',' between them, nothing for 0.
--
-- Temporary queues (x-expires) have no history, nor has one whose meta `history` is 'off'. Errors here are nobody's business: what a
-- foreign hand has put into these keys must not keep a job from being taken.

local TIMES = string.sub(META, 1, -5) .. 'times'
local HISTORY = string.sub(META, 1, -5) .. 'history'

-- The minutes of a slot, and how many slots are kept: 2 hours, 12 hours and 14 days of them.
local STEPS = {{1, 120}, {10, 72}, {60, 336}}
local MINUTE = 60000
-- For how long a queue without traffic keeps what it has.
local HISTORY_LIFE = 336 * 60 * MINUTE
-- Bytes of an entry. One with more gets coarser histograms. test_history.py knows what that comes to.
local MAX_ENTRY = 248

-- Of the jobs of one call, at least so many are timed if there are so many.
local SAMPLE = 8

local LAST_BUCKET = 28
-- Where in `times` each histogram begins: its buckets, then its sum.
local WAITS, RUNS = 0, LAST_BUCKET + 2

-- In the order of results.COUNTERS.
local COUNTERS = {
  'published', 'deduplicated', 'delivered', 'redelivered', 'acked', 'cancelled', 'requeued', 'released', 'reclaimed', 'expired',
  'maxlen', 'broken', 'dead', 'forwarded', 'revived', 'removed', 'purged', 'moved',
  'dropped',
}

local function has_history()
  return queue.schema and queue.history ~= 'off' and not queue.expires
end

-- Which of so many jobs of one call are timed: those from the first number on, in steps of the second, evenly spread. All of up to
-- 15, from 8 to 15 of more: timing each of a hundred would cost a tenth of the server's time.
local function sampling(jobs)
  local step = math.max(1, math.floor(jobs / SAMPLE))
  return math.floor((step + 1) / 2), step
end

-- Counts how long jobs took, ms, in one of the histograms. Where they are a sample of `looked_at` jobs, of which some may have no
-- time to tell, they count for that share of `all`.
local function observe(histogram, durations, looked_at, all)
  if #durations == 0 or not has_history() then
    return
  end
  local counts, sum, arguments = {}, 0, {}
  local weight, given = (all or 1) / (looked_at or 1), 0
  for i, ms in ipairs(durations) do
    local number = math.floor(i * weight + 0.5) - given -- whole ones, whose sum is right
    given = given + number
    local _, bucket = math.frexp(math.max(ms - 1, 0)) -- the first that has room for it: ms <= 2^bucket
    bucket = math.min(bucket, LAST_BUCKET)
    counts[bucket] = (counts[bucket] or 0) + number
    sum = sum + number * math.max(ms, 0)
  end
  counts[LAST_BUCKET + 1] = sum
  for bucket, number in pairs(counts) do
    append(arguments, 'INCRBY', 'i64')
    append(arguments, '#' .. histogram + bucket, string.format('%.0f', number))
  end
  attempt('BITFIELD', TIMES, unpack(arguments))
end

-- For how long a consumer has had a job; nil where its hash does not tell, and where nobody wants to know.
local function run_time(now, id)
  if not has_history() then
    return nil
  end
  local since = tonumber(attempt('HGET', JOB .. id, 'delivered_at') or nil)
  return since and now - since
end

local function forget_history()
  call('DEL', TIMES, HISTORY)
  for _, step in ipairs(STEPS) do
    call('DEL', HISTORY .. ':' .. step[1])
  end
  set_meta('next_sample', nil)
end

-- The counters and the histograms as one list of numbers.
local function totals()
  local numbers = {}
  for i, counter in ipairs(call('HMGET', META, unpack(COUNTERS))) do
    numbers[i] = tonumber(counter or nil) or 0
  end
  local bytes, width = attempt('GET', TIMES) or '', 2 * RUNS
  for first = 1, 8 * width, 8 do
    local number = 0
    for byte = first, first + 7 do
      number = number * 256 + (string.byte(bytes, byte) or 0)
    end
    append(numbers, number)
  end
  return numbers
end

-- Numbers as text, without the zeros at their end.
local function numbers_text(numbers, first, last)
  while last >= first and numbers[last] == 0 do
    last = last - 1
  end
  local texts = {}
  for i = first, last do
    append(texts, numbers[i] == 0 and '' or string.format('%.0f', numbers[i]))
  end
  return table.concat(texts, ',')
end

-- What a slot has beside its beginning: with buckets of twice, four times … the width, if it would be too long. Those are the upper ones.
local function slot_text(depths, numbers)
  local first_wait = #COUNTERS + 1
  local width = 1
  while true do
    local text = depths .. ';' .. numbers_text(numbers, 1, #COUNTERS) .. ';' ..
      numbers_text(numbers, first_wait, first_wait + RUNS - 1) .. ';' .. numbers_text(numbers, first_wait + RUNS, #numbers)
    if #text <= MAX_ENTRY or width > LAST_BUCKET then
      return text
    end
    for _, from in ipairs({first_wait, first_wait + RUNS}) do
      for bucket = width - 1, LAST_BUCKET - width, 2 * width do
        numbers[from + bucket + width] = numbers[from + bucket + width] + numbers[from + bucket]
        numbers[from + bucket] = 0
      end
    end
    width = 2 * width
  end
end

local function depths_text(now)
  local held, due = 0, count_due(now)
  each_held(function(key) held = held + call('ZCARD', key) end)
  return numbers_text({call('ZCARD', WAITING) + due, call('ZCARD', SCHEDULED) - due, held, call('ZCARD', DEAD)}, 1, 4)
end

-- Closes a slot: what has come since the totals with which it began. A total that is lower than it was began anew.
local function close_slot(step, open, depths, current)
  local began, numbers, at = string.match(open, '^(%d+)'), {}, 0
  for number in string.gmatch(string.sub(open, #began + 2), '[^,]*,?') do
    at = at + 1
    local before = tonumber((string.gsub(number, ',', ''))) or 0
    numbers[at] = current[at] and current[at] - (current[at] >= before and before or 0)
  end
  for i = #numbers + 1, #current do
    numbers[i] = current[i]
  end
  local key = HISTORY .. ':' .. step[1]
  attempt('RPUSH', key, began .. ';' .. slot_text(depths, numbers))
  attempt('LTRIM', key, -step[2], -1)
  attempt('PEXPIRE', key, HISTORY_LIFE)
end

-- Called before a script changes anything: closes the slots that are over. Costs nothing more than once a minute.
local function sample(now)
  local due = tonumber(queue.next_sample)
  if due and now < due and due - now <= MINUTE or not has_history() then
    return
  end
  if due and now < due then -- the clock was wrong
    forget_history()
  end
  local steps = {}
  for i, step in ipairs(STEPS) do
    steps[i] = step[1]
  end
  local open = attempt('HMGET', HISTORY, unpack(steps)) or {}
  local current, depths = totals(), depths_text(now)
  local text = numbers_text(current, 1, #current)
  for i, step in ipairs(STEPS) do
    local began = string.format('%.0f', now - now % (step[1] * MINUTE))
    local since = string.match(open[i] or '', '^(%d+),')
    if since ~= began then
      if since then
        close_slot(step, open[i], depths, current)
      end
      attempt('HSET', HISTORY, step[1], began .. ',' .. text)
    end
  end
  attempt('PEXPIRE', HISTORY, HISTORY_LIFE)
  set_meta('next_sample', string.format('%.0f', now - now % MINUTE + MINUTE))
  queue.sampled = true
end
