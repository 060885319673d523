-- The hint: one line of numbers, then the bytes that it counts. Too much for a hint is left out; `gap` says that what
-- was left out shows nowhere in the marks. `row` is what would be read here: status, times and state.
local function tell(p, rules, voids, events, piece, row)
  if rules.hints == '' then return end
  local head = string.format('%s %s %.0f', guard_of(p), marks_of(p), voids)
  local parts, size = {}, 0
  local function put(text)
    parts[#parts + 1] = text
    size = size + #text
  end
  if piece then
    put(table.concat({
      digits(piece.token), piece.name, digits(piece.offset), piece.final and '1' or '0', piece.cut and '1' or '0',
      tostring(#piece.data),
    }, ' ') .. '\n')
    put(piece.data)
    head = head .. ' - - - - - 0 1'
  else
    row = row or redis.call('HMGET', STATE, 'status', 'started_at', 'heartbeat_at', 'updated_at', 'state')
    local state = row[5] or ''
    put(state)
    for _, event in ipairs(events) do
      put(string.format('%.0f %s %s %.0f %d %d %d %d\n', event.position, event.tag, event.prev, event.version,
        #event.id, #event.type, #event.head, #event.payload))
      put(event.id)
      put(event.type)
      put(event.head)
      put(event.payload)
    end
    head = table.concat({
      head, row[1] or '-', row[2] or '-', row[3] or '-', row[4] or '-', tostring(#state), tostring(#events), '0',
    }, ' ')
  end
  local message
  if size <= rules.hint_bytes then
    message = head .. '\n' .. table.concat(parts)
  elseif piece then
    message = 'gap'
  else
    message = string.format('%s %s %.0f - - - - - 0 0\n', guard_of(p), marks_of(p), voids)
  end
  redis.pcall(rules.hints, CHANNEL, message)  -- what is written is written, told or not
end
