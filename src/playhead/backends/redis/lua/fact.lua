#!lua
-- uses: projection places events retention text hint
-- ProjectionStore.fact; the verdict is core's `judge_fact`, the effects are `after_fact`.

local rules = take_rules()
local epoch, rev, token = take_whole(), take_whole(), take_whole()
local starts, status, final, started_at = take_flag(), take(), take_flag(), take_optional()
local has_state, state, step, progress = take_flag(), take(), take(), take()
local feed_id, event = take(), take_event()

local p = load()
if not p or p.epoch < epoch then return {'needs_rebuild', p and digits(p.epoch) or '0'} end
if p.epoch > epoch then return {'wrong_epoch', digits(p.epoch)} end
if rev <= p.rev then return already(p, event.id, nil, nil, rev) end
if rev > p.rev + 1 then return {'gap', digits(p.rev)} end
if p.final_at then return {'final'} end

local void, kept, parts = {}, {}, texts()
if starts then
  for _, part in ipairs(parts) do
    local list = part.token < math.max(token, p.token) and void or kept
    list[#list + 1] = part
  end
end
local keys, unnamed = text_keys(final and parts or void)
if unnamed then return unnamed end

p.rev = rev
if starts and token > p.token then p.token, p.n, p.state_version = token, 0, 0 end
local was_empty = p.position == p.floor
if not append(p, event, rules.now) then return {'needs_rebuild', digits(p.epoch)} end
if final then p.final_at = rules.now end
local moved = trim(p, rules)
index(p, rules, moved or was_empty)
local told = {
  'guard', guard_of(p), 'marks', marks_of(p), 'last_event_id', entry_id(p, p.position), 'status', status,
  'fencing_token', digits(p.token), 'attempt_id', feed_id .. ':' .. digits(p.token), 'updated_at', digits(rules.now),
}
if has_state then
  for _, value in ipairs({'state', state, 'current_step', step, 'progress', progress}) do told[#told + 1] = value end
end
redis.call('HSET', STATE, unpack(told))
if started_at then
  redis.call('HSET', STATE, 'started_at', digits(started_at))
else
  redis.call('HDEL', STATE, 'started_at')
end
if #void > 0 then
  redis.call('HSET', STATE, 'texts', listed(kept))
  redis.call('DEL', unpack(keys))
end
if idles(rules.feed) then
  use(rules)
elseif final then
  redis.call('PEXPIRE', STATE, rules.snapshot_ttl)
  redis.call('PEXPIRE', EVENTS, rules.timeline_ttl)
  for _, key in ipairs(keys) do redis.call('PEXPIRE', key, rules.snapshot_ttl) end
  ends(rules.feed, p.final_at + math.min(rules.timeline_ttl, rules.snapshot_ttl))
end
tell(p, rules, starts and p.token or 0, {event})
return applied(p)
