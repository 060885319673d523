#!lua flags=allow-oom
-- uses: projection retention
-- ProjectionStore.watched, for one feed that ends by being left alone.

local rules = take_rules()
if not load() then return 0 end
use(rules)
return 1
