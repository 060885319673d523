-- The first retained position for whose entry `reached` holds, which then holds for every later one; nil: none.
local function seek(p, reached)
  local low, high = p.floor, p.position + 1
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    local entry = at(p, middle)
    if not entry then return nil end
    if reached(entry) then high = middle else low = middle end
  end
  if high > p.position then return nil end
  return high
end

-- Where an event stands: a published one by its token and n, a fact by its rev.
local function place(p, id, token, n, rev)
  local position = seek(p, function(entry)
    if rev then return (whole(field(entry, 'rev')) or 0) >= rev end
    local other = whole(field(entry, 'fencing_token')) or 0
    return other > token or (other == token and (whole(field(entry, 'n')) or 0) >= n)
  end)
  local entry = position and at(p, position)
  if not entry or field(entry, 'id') ~= id then return nil end
  return position, field(entry, 'tag')
end

local function already(p, id, token, n, rev)
  local position, tag = place(p, id, token, n, rev)
  if not position then return {'already'} end
  return {'already', digits(p.epoch), digits(position), tag}
end
