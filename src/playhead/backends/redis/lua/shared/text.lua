-- Text. The field `texts` lists the parts in the order of their beginning: `token:name:end:cut`, with `-` for the end
-- of an open part. Their text is in keys of their own, which the caller has to name.

local function texts()
  local list = redis.pcall('HGET', STATE, 'texts')
  local parts = {}
  if type(list) == 'string' then
    for token, name, final, cut_off in string.gmatch(list, '(%d+):([%w_]+):([%d-]+):([01])') do
      parts[#parts + 1] = {token = whole(token) or 0, name = name, final = whole(final), cut = cut_off == '1'}
    end
  end
  return parts
end

local function listed(parts)
  local list = {}
  for i, part in ipairs(parts) do
    list[i] = table.concat({
      digits(part.token), part.name, part.final and digits(part.final) or '-', part.cut and '1' or '0',
    }, ':')
  end
  return table.concat(list, ' ')
end

-- The keys of these parts, or the answer that tells the caller which ones to name.
local function text_keys(parts)
  local named = {}
  for i = FIRST_TEXT, #KEYS do
    named[string.match(KEYS[i], '}:text:(.*)$')] = KEYS[i]
  end
  local keys, wanted, complete = {}, {'keys'}, true
  for i, part in ipairs(parts) do
    local name = digits(part.token) .. ':' .. part.name
    keys[i], wanted[i + 1] = named[name], name
    complete = complete and named[name] ~= nil
  end
  if complete then return keys end
  return nil, wanted
end
