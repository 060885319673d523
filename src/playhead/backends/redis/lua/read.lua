#!lua flags=no-writes
-- uses: projection
-- ProjectionStore.read: the snapshot's fields, then the entries of the window.

local after, before, limit = take_optional(), take_optional(), take_whole()
local p = load()
if not p then return false end
local row = redis.call('HMGET', STATE, 'status', 'started_at', 'heartbeat_at', 'updated_at', 'state')
local low = math.max(after or 0, p.floor)
local high = before and math.min(before - 1, p.position) or p.position
local wanted = math.max(0, math.min(limit, high - low))
local entries = {}
if wanted > 0 then
  if not after then low = high - wanted end
  entries = redis.call('XRANGE', EVENTS, entry_id(p, low + 1), entry_id(p, low + wanted))
end
return {guard_of(p), marks_of(p), row[1], row[2], row[3], row[4], row[5], digits(low), digits(wanted), entries}
