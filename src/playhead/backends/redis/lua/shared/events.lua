-- Events: nine arguments each. What is added is kept for the hint.

local function take_event()
  return {
    id = take(), type = take(), attempt_id = take(), schema_version = take(), occurred_at = take(), head = take(),
    payload = take(), weight = take_whole(), tag = take_tag(),
  }
end

-- Append an event; false if the stream does not take it, because it is not the one that the marks tell of.
local function append(p, event, now)
  local position, version = p.position + 1, p.version + 1
  local weight = p.weight + event.weight
  local added = redis.pcall('XADD', EVENTS, entry_id(p, position),
    'type', event.type, 'attempt_id', event.attempt_id, 'fencing_token', digits(p.token),
    'schema_version', event.schema_version, 'occurred_at', event.occurred_at, 'payload_json', event.payload,
    'tag', event.tag, 'prev', p.tag, 'id', event.id, 'version', digits(version), 'n', digits(p.n),
    'rev', digits(p.rev), 'at', digits(now), 'weight', digits(weight), 'head', event.head)
  if type(added) == 'table' and added.err then
    if string.find(added.err, '^ERR The ID') then return false end
    error(added.err)
  end
  event.position, event.version, event.prev = position, version, p.tag
  p.position, p.version, p.tag, p.weight, p.length = position, version, event.tag, weight, p.length + 1
  return true
end
