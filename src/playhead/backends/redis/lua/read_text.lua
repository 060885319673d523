#!lua flags=no-writes
-- uses: projection text
-- TextChannel.read_text: per part token, name, end, cut and text. Without the keys of the parts: which they are.

local p = load()
if not p then return {} end
local parts = texts()
local keys, unnamed = text_keys(parts)
if unnamed then return unnamed end
local found = {'parts', guard_of(p), p.tag}
for i, part in ipairs(parts) do
  local data = redis.pcall('GET', keys[i])
  if type(data) ~= 'string' then data = '' end
  found[#found + 1] = {digits(part.token), part.name, part.final and digits(part.final) or '-', part.cut and '1' or '0', data}
end
return found
