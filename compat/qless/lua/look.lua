-- Looks at a keyspace before anything is written to it: at some of its keys and some of its jobs. Changes nothing.
--
-- KEYS, ARGV[1] and ARGV[2]: see _common.lua
-- Result   {role of the server, {key, type …} that qless does not have, {generation, id …} of jobs: 'early' for those of before 2013,
--          'unified', 'final', 'reqless'}

-- How many keys the server looks at for one of qless, and how many jobs are looked at.
local KEYS_LOOKED_AT = 2000
local JOBS_LOOKED_AT = 100

local TYPES = {
  queues = 'zset', paused_queues = 'set', workers = 'zset', failures = 'set', completed = 'zset', tracked = 'zset', tags = 'zset',
  config = 'hash', r = 'hash', f = 'list', t = 'zset', s = 'hash', w = 'zset', q = 'zset', j = 'hash list set', th = 'hash zset',
  qp = 'hash list', ferryman = 'zset',
}

return reply_of(function()
  local strange, jobs, count = {}, {}, 0
  local info = redis.pcall('INFO', 'replication')
  local role = type(info) == 'string' and string.match(info, 'role:(%a+)') or ''
  local pattern = string.gsub(QL, '[%*%?%[%]\\]', '\\%0') .. '*'
  for _, key in ipairs(call('SCAN', '0', 'MATCH', pattern, 'COUNT', KEYS_LOOKED_AT)[2]) do
    local word = string.match(string.sub(key, #QL + 1), '^[^:]*')
    local kind = redis.call('TYPE', key).ok
    if not string.find(TYPES[word] or '', kind, 1, true) then
      append(strange, key, kind)
    elseif word == 'j' and kind == 'hash' and count < JOBS_LOOKED_AT then
      count = count + 1
      local id = string.sub(key, #RECORD + 1)
      local generation = core_of_job(id)
      local fields = call('HMGET', key, 'id', 'history', 'jid')
      if fields[2] or (fields[1] and not fields[3]) then
        generation = 'early'
      end
      if generation then
        append(jobs, generation, id)
      end
    end
  end
  return {role, strange, jobs}
end)
