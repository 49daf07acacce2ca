-- What every script about one fanout exchange begins with, after _common.lua.
--
-- KEYS[1] stream   broadcast messages, one field `message`
-- KEYS[2] cursors  hash: bound queue -> "last id read" or "last id read, a space, expiry ms"
--
-- A queue gets what is published after it was bound, because its cursor is set then. An expired cursor is removed by the next
-- script that meets it. With the last cursor the stream goes too: nobody is left to read it, and who binds again begins anew.
-- Where every cursor expires, both keys do, with the last of them: nothing stays when all who were bound have been killed.

local STREAM, CURSORS = KEYS[1], KEYS[2]

-- A first write that needs no memory and changes nothing: no queue has an empty name (rule 2).
local function first_write()
  call('HDEL', CURSORS, '')
end

local function expiry_of(cursor)
  return tonumber(string.match(cursor, ' (%d+)$') or nil) or math.huge
end

local function cursor_text(id, expiry)
  return expiry == '' and id or id .. ' ' .. expiry
end

-- A queue's cursor, nil if it has none or an expired one.
local function cursor_of(queue, now)
  local cursor = call('HGET', CURSORS, queue)
  if cursor and expiry_of(cursor) > now then
    return string.match(cursor, '^%S+')
  end
  return nil
end

-- Removes expired cursors, of more than MAX_PER_CALL some, and the stream with the last one. Returns how many queues are bound, and
-- when the last expires: of more than MAX_PER_CALL, when their key does.
local function sweep(now)
  local number, last = call('HLEN', CURSORS), 0
  local some
  if number <= MAX_PER_CALL then
    some = call('HGETALL', CURSORS)
  else
    some = call('HRANDFIELD', CURSORS, MAX_PER_CALL, 'WITHVALUES')
    local left = call('PTTL', CURSORS)
    last = left >= 0 and now + left or math.huge
  end
  local expired = {}
  for i = 1, #some, 2 do
    local expiry = expiry_of(some[i + 1])
    if expiry <= now then
      append(expired, some[i])
    end
    last = math.max(last, expiry)
  end
  in_slices('HDEL', CURSORS, expired)
  local bound = number - #expired
  if bound == 0 then
    call('DEL', STREAM)
  end
  return bound, last
end

-- Lets a key live until then; for ever, if that is infinite.
local function live_until(key, now, moment)
  if moment < math.huge then
    call('PEXPIRE', key, moment - now)
  else
    call('PERSIST', key)
  end
end
