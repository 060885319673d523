#!lua flags=no-writes
-- uses: projection places
-- ProjectionStore.find

local id, token, n, rev = take(), take_optional(), take_optional(), take_optional()
local p = load()
if not p then return false end
local position = place(p, id, token, n, rev)
return position and digits(position) or false
