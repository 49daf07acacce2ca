-- What every script begins with. Runs on Redis 6.2, 7, 8 and Valkey; no shebang, so one text serves them all.
--
-- Rules that all scripts obey:
--
-- 1. Arrive before you leave. A job is added to its new place before it is removed from the old one, so an error in the
--    middle (a key of a wrong type) can leave a job in two places, which an audit finds, but never in none.
-- 2. Only publishing can be refused for lack of memory. A server at maxmemory refuses a script whose first write needs memory,
--    and lets one go on whose first write does not. So every script but those that publish begins with first_write(), which
--    changes nothing and needs no memory: a full server can be drained, also by a consumer that has to declare its queue first.
-- 3. Errors are replies. A script replies {'ok', result}, or a refusal {word, detail…} that parse functions turn into the
--    family's exceptions, whoever sent the call and how. Server errors of other kinds (READONLY, MISCONF …) pass through.
--
-- ARGV[1] of every script is the time in ms for tests, or '' for the server's own clock.

-- Lua 5.1 unpacks at most some 8,000 values into a call; commands over many members go in slices of this many values.
local SLICE = 2000

-- Most jobs, or bindings of an exchange, that one call works on: some milliseconds of the server's time. As in queue_scripts.py.
local MAX_PER_CALL = 1000

-- Ends the script with a refusal: the words of its reply.
local function refuse(...)
  error({refusal = {...}})
end

-- redis.call, whose errors reply_of() can tell apart; they carry the key that the command was about. (They must not carry `err`:
-- Redis 7.0's pcall would make a plain string of them.)
local function call(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) == 'table' and reply.err then
    error({failure = reply.err, key = key})
  end
  return reply
end

-- redis.call for a key that may hold anything: nil where the command fails.
local function attempt(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    return nil
  end
  return reply
end

-- The characters of UTF-8 that two halves of a surrogate pair stand for, four hexadecimal digits each.
local function pair_text(high, low)
  local code = 65536 + (tonumber(high, 16) - 55296) * 1024 + tonumber(low, 16) - 56320
  local second, third = 128 + math.floor(code / 4096) % 64, 128 + math.floor(code / 64) % 64
  return string.char(240 + math.floor(code / 262144), second, third, 128 + code % 64)
end

-- pcall(cjson.decode, text), for text that has half a surrogate pair as well, which it gives as U+FFFD. cjson refuses it; JSON allows
-- it, and Python writes it, in the name of a file that is not UTF-8 for example. Escaped backslashes are set apart first, because what
-- follows them is no escape.
local function decode_json(text)
  local fine, value = pcall(cjson.decode, text)
  if not fine and string.find(text, '\\u[dD]') then
    text = string.gsub(text, '\\(.)', {['\\'] = '\\u005c'})
    text = string.gsub(text, '\\u([dD][89abAB]%x%x)\\u([dD][c-fC-F]%x%x)', pair_text)
    text = string.gsub(text, '\\u[dD][89a-fA-F]%x%x', '\\ufffd')
    fine, value = pcall(cjson.decode, text)
  end
  return fine, value
end

-- The moment at which something ends that lasts so many ms from now; '' for what lasts for ever.
local function expiry_at(now, life)
  return life == '' and '' or string.format('%.0f', now + life)
end

-- The reply of a transition: what it returns, or why it was refused.
local function reply_of(transition)
  local fine, reply = pcall(transition)
  if fine then
    return {'ok', reply}
  end
  if type(reply) ~= 'table' then
    return {err = 'ERR ' .. tostring(reply)}
  end
  if reply.refusal then
    return reply.refusal
  end
  -- Redis 6.2 puts "@user_script: <line>: -" before the errors that scripts alone can get.
  local text = string.gsub(reply.failure, '^@user_script: ?%d+: %-?', '')
  if string.find(text, '^OOM') then
    return {'full', text}
  end
  if string.find(text, '^WRONGTYPE') or string.find(text, '^ERR hash value is not') then
    return {'damaged', reply.key, text}
  end
  return {err = text}
end

-- This moment, in Unix ms.
local function clock()
  if ARGV[1] ~= '' then
    return tonumber(ARGV[1])
  end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Sends a command with many arguments in slices: members, or pairs of score and member, which SLICE keeps together.
local function in_slices(command, key, values)
  for first = 1, #values, SLICE do
    call(command, key, unpack(values, first, math.min(first + SLICE - 1, #values)))
  end
end

-- Adds a value, or two that belong together, at the end of a list.
local function append(list, value, second)
  local last = #list
  list[last + 1] = value
  list[last + 2] = second
end
