-- Remove what retention no longer keeps: core's `new_floor`, with both measures taken here.

local function measured(p, below, goes)
  local reached = p.floor
  while reached < below do
    local entries = redis.call('XRANGE', EVENTS, entry_id(p, reached + 1), entry_id(p, below), 'COUNT', 16)
    if #entries == 0 then return reached end
    for _, entry in ipairs(entries) do
      if not goes(entry) then return reached end
      reached = reached + 1
    end
  end
  return reached
end

local function cut(p, floor)
  if floor <= p.floor then return end
  local last = at(p, floor)
  p.floor_weight = math.max(p.floor_weight, math.min(last and whole(field(last, 'weight')) or 0, p.weight))
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
    local gone = p.floor_weight
    heavy = measured(p, p.position, function(entry)
      if gone >= excess then return false end
      gone = whole(field(entry, 'weight')) or excess
      return true
    end)
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

local function forget(feed)
  note('SREM', WAITING, feed)
  note('ZREM', ENDS, feed)
  note('ZREM', OLDEST, feed)
end
