-- Makes the token list of one type exactly as long as its waiting index. Safe to repeat, to be repeated while it replies 1 (one call
-- does a part of the work), and beside live workers:
-- a worker that has taken a token but no job yet only leaves one token more than are needed.
-- KEYS[1]  P:jobs:T:inactive
-- KEYS[2]  P:T:jobs
-- Result   1 if there is more to do, 0 if not
local LIMIT = 5000

local missing = redis.call('ZCARD', KEYS[1]) - redis.call('LLEN', KEYS[2])
if missing < 0 then
  redis.call('LTRIM', KEYS[2], -missing, -1)
end
for _ = 1, math.min(missing, LIMIT) do
  redis.call('LPUSH', KEYS[2], '1')
end
return missing > LIMIT and 1 or 0
