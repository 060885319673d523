#!lua flags=allow-oom
-- uses: projection retention
-- Whether a feed that an index names waits for what the index is of: `waiting` for the archive, `oldest` for its age.

local feed, which, bound = take(), take(), take_optional()
local p = load()
if which == 'waiting' then
  if p and p.position > math.max(p.archived, p.floor) then return 1 end
  note('SREM', WAITING, feed)
  return 0
end
local first = p and p.position > p.floor and at(p, p.floor + 1)
if not first then
  note('ZREM', OLDEST, feed)
  return 0
end
local oldest = whole(field(first, 'at')) or 0
note('ZADD', OLDEST, digits(oldest), feed)
return oldest < bound and 1 or 0
