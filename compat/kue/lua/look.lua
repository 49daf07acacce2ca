-- A look at what stands under a prefix, before anything is written there. Changes nothing.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]  P as a pattern
-- Result   {word, detail}: 'fine', the version, as era() has it, and whether there are jobs; 'other' and a key that kue has not;
--          'mixed' and a member; 'replica' and ''; 'literal' and the version, where that knows no prefix but q;
--          'forbidden' and what the user may not do

local LOOKED_AT = 100
local TYPES = {ids = 'string', ['job:types'] = 'set', jobs = 'zset', ['stats:work-time'] = 'string'}
for _, state in ipairs({'inactive', 'delayed', 'active', 'complete', 'failed'}) do
  TYPES['jobs:' .. state] = 'zset'
end

-- What the add-ons kue-scheduler and kue-unique keep under the prefix, also while no job has been created yet.
local function is_of_add_on(key)
  local name = string.sub(key, #P + 1)
  return string.sub(name, 1, 10) == 'scheduler:' or name == 'unique:jobs'
end

-- A key under the prefix in a keyspace that has nothing of kue's, or of its add-ons.
local function stranger()
  local cursor = '0'
  for _ = 1, LOOKED_AT do
    local found = call('SCAN', cursor, 'MATCH', ARGV[2], 'COUNT', LOOKED_AT)
    for _, key in ipairs(found[2]) do
      if not is_of_add_on(key) then
        return key
      end
    end
    cursor = found[1]
    if cursor == '0' then
      return nil
    end
  end
end

-- What the transitions can't do without, and what would fail in the middle of one. Redis 6.2 can't be asked.
local function forbidden()
  local needed = {{'PTTL', 'promotion:lock'}, {'PTTL', 'activeJobsTTL:lock'}, {'PUBLISH', P .. 'events', '1'}}
  for _, words in ipairs(redis.acl_check_cmd and needed or {}) do
    if not redis.acl_check_cmd(unpack(words)) then
      return words[1] .. ' ' .. words[2]
    end
  end
end

return reply_of(function()
  local is_known = false
  for name, kind in pairs(TYPES) do
    local found = call('TYPE', P .. name).ok
    if found ~= 'none' and found ~= kind then
      return {'other', P .. name}
    end
    is_known = is_known or (found ~= 'none' and name ~= 'ids' and name ~= 'jobs')
  end
  local last = call('GET', P .. 'ids')
  if last and not string.match(last, '^%d+$') then
    return {'other', P .. 'ids'}
  end
  is_known = is_known or (last and call('EXISTS', P .. 'jobs') == 1)
  local other = not is_known and not last and stranger()
  if other then
    return {'other', other}
  end
  local forms = {}
  for _, index in ipairs({'jobs', 'jobs:inactive', 'jobs:delayed', 'jobs:active'}) do
    for _, command in ipairs({'ZRANGE', 'ZREVRANGE'}) do
      for _, member in ipairs(call(command, P .. index, 0, LOOKED_AT - 1)) do
        local form = string.find(member, '|', 1, true) and 'padded' or 'plain'
        forms[form] = true
        if forms.padded and forms.plain then
          return {'mixed', member}
        end
      end
    end
  end
  local replication = attempt('INFO', 'replication') or ''
  if string.find(replication, 'role:slave', 1, true) and string.find(replication, 'slave_read_only:1', 1, true) then
    return {'replica', ''}
  end
  local missing = forbidden()
  if missing then
    return {'forbidden', missing}
  end
  if era() < V0_8 and P ~= 'q:' then
    return {'literal', number_text(era())}
  end
  return {'fine', number_text(era()), call('EXISTS', P .. 'jobs')}
end)
