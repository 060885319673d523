-- What every script starts with. A projection is one hash whose fields `guard` and `marks` hold all its numbers, so
-- that they are read at once and make sense together or not at all. Numbers are whole and below 2^53: exact in Lua.

local LIMIT = 9007199254740992
local GUARD = '^(%d+):(%d+):(%d+)$'
local MARKS = '^(%d+):(%x+):(%d+):(%d+):(%d+):(%d+):(%d+):(%d+):(%d+):(%d+):(%-?%d*)$'

-- The projection at stake. Indexes are those that tell loops over all feeds which ones wait for something.
local STATE, EVENTS, CHANNEL, WAITING, ENDS, OLDEST = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local FIRST_TEXT = 7

-- A number whose digits a pattern has found already.
local function exact(text)
  if #text > 16 then return nil end
  local number = tonumber(text)
  return number and number < LIMIT and number or nil
end

local function whole(text)
  if not text or #text > 16 or not string.find(text, '^%d+$') then return nil end
  local number = tonumber(text)
  if number >= LIMIT then return nil end
  return number
end

local function digits(number)
  return string.format('%.0f', number)
end

-- Arguments, in their order.

local taken = 0

local function take()
  taken = taken + 1
  local value = ARGV[taken]
  if not value then error('BADARG ' .. taken) end
  return value
end

local function take_whole()
  local number = whole(take())
  if not number then error('BADARG ' .. taken) end
  return number
end

local function take_optional()
  local value = take()
  if value == '' then return nil end
  if not whole(value) then error('BADARG ' .. taken) end
  return tonumber(value)
end

local function take_flag()
  return take() == '1'
end

local function take_tag()
  local value = take()
  if #value ~= 12 or string.find(value, '[^0-9a-f]') then error('BADARG ' .. taken) end
  return value
end

-- The bounds of the store's settings, which every script that may trim or tell gets first, in one argument: each
-- argument costs about as much as a field that is written.
local function take_rules()
  local count, hard, max_bytes, age, archive, timeline_ttl, snapshot_ttl, idle_ttl, hints, hint_bytes =
    string.match(take(), '^(%d+):(%d+):(%d+):(%d*):([01]):(%d+):(%d+):(%d+):(%u*):(%d+)$')
  if not count then error('BADARG ' .. taken) end
  return {
    count = tonumber(count), hard = tonumber(hard), max_bytes = tonumber(max_bytes), age = tonumber(age),
    archive = archive == '1', timeline_ttl = tonumber(timeline_ttl), snapshot_ttl = tonumber(snapshot_ttl),
    idle_ttl = tonumber(idle_ttl), hints = hints, hint_bytes = tonumber(hint_bytes), feed = take(), now = take_whole(),
  }
end

-- The projection, or nil where there is none that makes sense.
local function load()
  local row = redis.pcall('HMGET', STATE, 'guard', 'marks', 'status', 'started_at')
  if row.err or not row[1] or not row[2] then return nil end
  local epoch, token, rev = string.match(row[1], GUARD)
  local position, tag, floor, archived, n, state_version, version, length, weight, floor_weight, final_at =
    string.match(row[2], MARKS)
  if not epoch or not position then return nil end
  local p = {
    epoch = exact(epoch), token = exact(token), rev = exact(rev),
    position = exact(position), tag = tag, floor = exact(floor), archived = exact(archived),
    n = exact(n), state_version = exact(state_version), version = exact(version),
    length = exact(length), weight = exact(weight), floor_weight = exact(floor_weight), final_at = whole(final_at),
    status = row[3] or '-', started_at = row[4] or '-',
  }
  if not (p.epoch and p.token and p.rev and p.position and p.floor and p.archived and p.n and p.state_version
      and p.version and p.length and p.weight and p.floor_weight) then
    return nil
  end
  if #tag ~= 12 or not (p.final_at or final_at == '-') then return nil end
  if p.floor > p.position or p.archived > p.position or p.floor_weight > p.weight then return nil end
  local kept = redis.pcall('XLEN', EVENTS)
  if type(kept) ~= 'number' then return nil end
  if kept == 0 and p.final_at then  -- it has outlived its time
    p.floor, p.floor_weight, p.length = p.position, p.weight, 0
  end
  if kept ~= p.length or kept < p.position - p.floor then return nil end
  return p
end

local function guard_of(p)
  return string.format('%.0f:%.0f:%.0f', p.epoch, p.token, p.rev)
end

local function marks_of(p)
  return string.format(
    '%.0f:%s:%.0f:%.0f:%.0f:%.0f:%.0f:%.0f:%.0f:%.0f:%s', p.position, p.tag, p.floor, p.archived, p.n,
    p.state_version, p.version, p.length, p.weight, p.floor_weight, p.final_at and digits(p.final_at) or '-')
end

local function entry_id(p, position)
  return string.format('%.0f-%.0f', p.epoch, position)
end

local function field(entry, name)
  for i = 1, #entry[2], 2 do
    if entry[2][i] == name then return entry[2][i + 1] end
  end
  return nil
end

local function at(p, position)
  local id = entry_id(p, position)
  return redis.call('XRANGE', EVENTS, id, id)[1]
end

local function applied(p)
  return {'applied', digits(p.epoch), digits(p.position), p.tag, digits(p.version)}
end
