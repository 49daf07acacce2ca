-- Mends one finding: applies all commands if everything that was seen of it still stands, and changes nothing otherwise.
-- KEYS[i]  every key that is looked at or changed
-- ARGV     number of looks; for each: number of words, the words of a reading command, the digest of its reply;
--          number of commands; for each: number of words, the words
-- Result   0: applied; otherwise which look (1 is the first) has another answer by now
-- The digest of a reply is worked out in the same way by preconditions.py.

local at = 0

local function following()
  at = at + 1
  return ARGV[at]
end

local function words()
  local found = {}
  for i = 1, tonumber(following()) do
    found[i] = following()
  end
  return found
end

local function flat(reply)
  if type(reply) == 'table' then
    if reply.err then
      return '!'
    end
    if reply.ok then
      return flat(reply.ok)
    end
    local parts = {}
    for i, part in ipairs(reply) do
      parts[i] = flat(part)
    end
    return '*' .. #parts .. ':' .. table.concat(parts)
  end
  if type(reply) == 'number' then
    return ':' .. string.format('%.0f', reply) .. ','
  end
  return reply and '$' .. #reply .. ':' .. reply or '-'
end

-- Replies without an order of their own, by how many parts belong together. Digests are put in order instead of texts,
-- because texts sort differently in every locale.
local UNORDERED = {HGETALL = 2, SMEMBERS = 1}

local function digest(command, reply)
  local size = type(reply) == 'table' and not reply.err and UNORDERED[command]
  if command == 'PTTL' and type(reply) == 'number' and reply >= 0 then
    reply = 'expires'
  elseif size then
    local items = {}
    for i = 1, #reply, size do
      items[#items + 1] = redis.sha1hex(flat({unpack(reply, i, i + size - 1)}))
    end
    table.sort(items)
    reply = items
  end
  return redis.sha1hex(flat(reply))
end

for look = 1, tonumber(following()) do
  local command = words()
  if digest(command[1], redis.pcall(unpack(command))) ~= following() then
    return look
  end
end

local commands = {}
for i = 1, tonumber(following()) do
  commands[i] = words()
  if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(commands[i])) then
    return redis.error_reply('NOPERM no permission for ' .. commands[i][1] .. ' ' .. commands[i][2])
  end
end
for _, command in ipairs(commands) do
  redis.call(unpack(command))
end
return 0
