#!lua
-- uses: projection retention text hint
-- ProjectionStore.open; the verdict is core's `judge_opening`.

local rules = take_rules()
local seen, epoch, rev, token, written_at = take_whole(), take_whole(), take_whole(), take_whole(), take_whole()
local tag, status, final, started_at, seen_tag = take_tag(), take(), take_flag(), take_optional(), take()
local state, step, progress, feed_id = take(), take(), take(), take()

local held = load()
local standing = held and held.epoch or 0
local moved = held and seen_tag ~= '' and seen_tag ~= held.tag
if standing ~= seen or standing >= epoch or moved then return {'wrong_epoch', digits(standing)} end
local keys, unnamed = text_keys(texts())
if unnamed then return unnamed end

local p = {
  epoch = epoch, token = token, rev = rev, position = 0, tag = tag, floor = 0, archived = 0, n = 0, state_version = 0,
  version = 1, length = 0, weight = 0, floor_weight = 0, final_at = final and rules.now or nil,
}
forget(rules.feed)
redis.call('DEL', STATE, EVENTS, unpack(keys))
redis.call('HSET', STATE,
  'guard', guard_of(p), 'marks', marks_of(p), 'last_event_id', entry_id(p, 0), 'status', status,
  'fencing_token', digits(token), 'attempt_id', feed_id .. ':' .. digits(token), 'updated_at', digits(written_at),
  'state', state, 'current_step', step, 'progress', progress)
if started_at then redis.call('HSET', STATE, 'started_at', digits(started_at)) end
if idles(rules.feed) then
  use(rules)
elseif final then
  redis.call('PEXPIRE', STATE, rules.snapshot_ttl)
  ends(rules.feed, p.final_at + rules.snapshot_ttl)
end
tell(p, rules, 0, {})
return applied(p)
