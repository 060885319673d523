#!lua flags=allow-oom
-- uses: projection retention
-- ProjectionStore.trim

local rules = take_rules()
local p = load()
if not p or not trim(p, rules) then return 0 end
index(p, rules, true)
redis.call('HSET', STATE, 'marks', marks_of(p))
return 1
