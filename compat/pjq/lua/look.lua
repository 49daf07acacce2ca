-- Looks at some keys, at most MOST, and writes nothing.
--
-- KEYS, ARGV[1]: see _common.lua
-- ARGV[2]   that again, as a pattern
-- Result    {1 if the server is a replica that can't be written to, {for each name of a container that was met with {name, type, key}}}

local MOST = 10000
local CONTAINERS = {
  jobs_queued = true, jobs_dispatched = true, jobs_processing = true, jobs_progress = true, jobs_finished = true,
  workers_idle = true, workers_busy = true, workers_last_seen = true,
  job_queue = true, leased_queue = true, progress_queue = true, idle_queue = true,
}

return reply_of(function()
  local found, is_found, cursor, looked = {}, {}, '0', 0
  repeat
    local page = redis.call('SCAN', cursor, 'MATCH', ARGV[2] .. '*', 'COUNT', 1000)
    cursor, looked = page[1], looked + 1000
    for _, key in ipairs(page[2]) do
      local name = string.match(string.sub(key, #KEYS[2] + 1), '^([%a_]+):')
      if name and CONTAINERS[name] then
        local kind = redis.call('TYPE', key).ok
        if not is_found[name .. kind] then
          is_found[name .. kind] = true
          append(found, {name, kind, key})
        end
      end
    end
  until cursor == '0' or looked >= MOST
  local replication = attempt('INFO', 'replication') or ''
  local is_replica = string.find(replication, 'role:slave', 1, true) and string.find(replication, 'slave_read_only:1', 1, true)
  return {is_replica and 1 or 0, found}
end)
