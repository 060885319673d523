#!lua flags=allow-oom
-- uses: projection retention text
-- ProjectionStore.drop. With a tag too, only while that is the newest entry's: what was found damaged there goes.

local feed, epoch, tag = take(), take_optional(), take()
local p = load()
if p and (epoch and p.epoch ~= epoch or tag ~= '' and p.tag ~= tag) then return 0 end
local keys, unnamed = text_keys(texts())
if unnamed then return unnamed end
forget(feed)
return redis.call('DEL', STATE, EVENTS, unpack(keys))
