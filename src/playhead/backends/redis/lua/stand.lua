#!lua flags=no-writes
-- uses: projection
-- ProjectionStore.stand, for one feed.

local p = load()
return p and {guard_of(p), marks_of(p)} or false
