-- Remove what retention no longer keeps: core's `new_floor`, with both measures taken here.

local function measured(p, below, goes)
  local reached, step = p.floor, 2  -- mostly one goes for each that comes, and the next one stays
  while reached < below do
    local entries = redis.call('XRANGE', EVENTS, entry_id(p, reached + 1), entry_id(p, below), 'COUNT', step)
    step = math.min(step * 2, 16)
    if #entries == 0 then return reached end
    for _, entry in ipairs(entries) do
      if not goes(entry) then return reached end
      reached = reached + 1
    end
  end
  return reached
end

-- The bytes of an event's body, as `rows.joined` makes it.
local function size(entry)
  local head, payload = field(entry, 'head') or '', field(entry, 'payload_json') or ''
  return #payload > 0 and #head + #payload + 12 or #head
end

local function cut(p, floor)
  if floor <= p.floor then return end
  p.floor = floor
  if floor == p.position then
    redis.call('DEL', EVENTS)
    p.length = 0
  else
    p.length = p.length - redis.call('XTRIM', EVENTS, 'MINID', '~', entry_id(p, floor + 1))
  end
end

local function trim(p, rules)
  local heavy, aged = p.floor, p.floor
  local excess = p.weight - rules.max_bytes
  if excess > p.floor_weight then
    local gone = p.floor_weight  -- at least: what the count removed is seen only here, as each look costs a read
    heavy = measured(p, p.position, function(entry)
      local weight = whole(field(entry, 'weight'))
      if weight then gone = math.max(gone, weight - size(entry)) end
      if gone >= excess then return false end
      gone = weight or excess
      return true
    end)
    p.floor_weight = math.max(p.floor_weight, math.min(gone, p.weight))
  end
  local removable = rules.archive and p.archived or (p.final_at and p.position or 0)
  if rules.age and removable > p.floor then
    aged = measured(p, removable, function(entry)
      return (whole(field(entry, 'at')) or 0) < rules.now - rules.age
    end)
  end
  local wanted = math.max(p.position - rules.count, aged)
  local soft = p.floor
  if rules.archive then
    soft = math.max(math.min(wanted, p.archived), p.position - rules.hard)
  elseif p.final_at then
    soft = wanted
  end
  local before = p.floor
  cut(p, math.min(math.max(p.floor, soft, heavy), p.position))
  return p.floor > before
end

-- Keep the indexes true to what the projection is now. What somebody else put in their place goes.

local function note(command, key, ...)
  local done = redis.pcall(command, key, ...)
  if type(done) == 'table' and done.err then
    redis.call('DEL', key)
    redis.call(command, key, ...)
  end
end

local function index(p, rules, moved)
  local waits = p.position > math.max(p.archived, p.floor)
  note(waits and 'SADD' or 'SREM', WAITING, rules.feed)
  if not rules.age then return end
  if not moved and type(redis.pcall('ZSCORE', OLDEST, rules.feed)) == 'string' then return end
  local first = p.position > p.floor and at(p, p.floor + 1)
  if first then
    note('ZADD', OLDEST, digits(whole(field(first, 'at')) or 0), rules.feed)
  else
    note('ZREM', OLDEST, rules.feed)
  end
end

local function ends(feed, at_ms)
  note('ZADD', ENDS, digits(at_ms), feed)
end

-- Core's `idles`: what ends by being left alone, and so has its time anew with each use.
local function idles(feed)
  return string.sub(feed, 1, 4) ~= 'run:'
end

local function use(rules)
  redis.call('HSET', STATE, 'used_at', digits(rules.now))
  redis.call('PEXPIRE', STATE, rules.idle_ttl)
  redis.call('PEXPIRE', EVENTS, rules.idle_ttl)
  ends(rules.feed, rules.now + rules.idle_ttl)
end

local function forget(feed)
  note('SREM', WAITING, feed)
  note('ZREM', ENDS, feed)
  note('ZREM', OLDEST, feed)
end
