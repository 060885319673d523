#!lua flags=no-writes
-- uses: projection text
-- TextChannel.lengths, for one feed.

local p = load()
if not p then return {} end
local parts = texts()
local keys, unnamed = text_keys(parts)
if unnamed then return unnamed end
local found = {'parts'}
for i, part in ipairs(parts) do
  local length = redis.pcall('STRLEN', keys[i])
  found[#found + 1] = {digits(part.token), part.name, type(length) == 'number' and digits(length) or '0'}
end
return found
