#!lua
-- uses: projection guard places events retention hint
-- ProjectionStore.publish; the verdict is core's `judge_publish`, the effects are `after_publish`.

local rules, guard = take_rules(), take_guard()
local first_n, last_n, state_version, written_at = string.match(take(), '^(%d+):(%d*):(%d+):(%d+)$')
if not first_n then error('BADARG ' .. taken) end
first_n, last_n, state_version, written_at = exact(first_n), exact(last_n), exact(state_version), exact(written_at)
local has_state, state, step, progress = take_flag(), take(), take(), take()
local count = take_whole()
local events = {}
for i = 1, count do events[i] = take_event() end
if not (first_n and state_version and written_at) or count > 0 and not last_n then error('BADARG') end

local p = load()
local refused = judge_guard(p, guard)
if refused then return refused end
local fresh_events = count > 0 and last_n > p.n
local fresh_state = has_state and state_version > p.state_version
if not fresh_events and not fresh_state then
  if count > 0 then return already(p, events[count].id, p.token, last_n) end
  return {'stale_version', digits(p.state_version)}
end
if has_state and not fresh_state then return {'stale_version', digits(p.state_version)} end

local known = math.max(0, p.n - first_n + 1)  -- events that an earlier send already brought
local was_empty, added = p.position == p.floor, {}
for i = known + 1, count do
  p.n = first_n + i - 1
  if not append(p, events[i], rules.now) then return {'needs_rebuild', digits(p.epoch)} end
  added[#added + 1] = events[i]
end
if #added == 0 then p.version = p.version + 1 end
if has_state then p.state_version = state_version end
local moved = trim(p, rules)
if #added > 0 then index(p, rules, moved or was_empty) end
local told = {
  'marks', marks_of(p), 'last_event_id', entry_id(p, p.position),
  'heartbeat_at', digits(written_at), 'updated_at', digits(written_at),
}
if has_state then
  for _, value in ipairs({'state', state, 'current_step', step, 'progress', progress}) do told[#told + 1] = value end
end
redis.call('HSET', STATE, unpack(told))
local row
if has_state then row = {p.status, p.started_at, digits(written_at), digits(written_at), state} end
tell(p, rules, 0, added, nil, row)
return applied(p)
