#!lua flags=allow-oom
-- uses: projection retention text
-- ProjectionStore.expire, for one feed that the index says has outlived something: 1 if something went.

local rules = take_rules()
local p = load()
local alone = idles(rules.feed)
if not p or not (alone or p.final_at) then
  note('ZREM', ENDS, rules.feed)
  return 0
end
local last = alone and (whole(redis.call('HGET', STATE, 'used_at')) or 0) + rules.idle_ttl
  or p.final_at + rules.snapshot_ttl
if last <= rules.now then
  local keys, unnamed = text_keys(texts())
  if unnamed then return unnamed end
  forget(rules.feed)
  redis.call('DEL', STATE, EVENTS, unpack(keys))
  return 1
end
if alone then
  ends(rules.feed, last)
  return 0
end
local swept = 0
if p.final_at + rules.timeline_ttl <= rules.now then
  swept = redis.call('DEL', EVENTS)
  p.floor, p.floor_weight, p.length = p.position, p.weight, 0
  index(p, rules, true)
  redis.call('HSET', STATE, 'marks', marks_of(p))
  ends(rules.feed, p.final_at + rules.snapshot_ttl)
else
  ends(rules.feed, p.final_at + math.min(rules.timeline_ttl, rules.snapshot_ttl))
end
return swept
