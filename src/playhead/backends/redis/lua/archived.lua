#!lua flags=allow-oom
-- uses: projection retention
-- ProjectionStore.archived

local rules = take_rules()
local epoch, position = take_whole(), take_whole()
local p = load()
if not p or p.epoch ~= epoch then return 0 end
p.archived = math.max(p.archived, math.min(position, p.position))
index(p, rules, trim(p, rules))
redis.call('HSET', STATE, 'marks', marks_of(p))
return 1
