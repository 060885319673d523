#!lua
-- uses: projection guard text hint
-- TextChannel.append; the verdict is core's `judge_text`.

local rules, guard = take_rules(), take_guard()
local name, offset, last, final, cut_off, data = take(), take_whole(), take_whole(), take_flag(), take_flag(), take()
local key = KEYS[FIRST_TEXT]

local p = load()
local refused = judge_guard(p, guard)
if refused then return refused end
local parts = texts()
local part
for _, other in ipairs(parts) do
  if other.token == guard.token and other.name == name then part = other end
end
local length = redis.pcall('STRLEN', key)
if type(length) ~= 'number' or not part or (part.final and part.final ~= length) then
  length = 0  -- a damaged part begins again
  if part then part.final, part.cut = nil, false end
  if redis.pcall('EXISTS', key) ~= 0 then redis.call('DEL', key) end
end
local closed = part and part.final
if length >= last and (closed or not final) then return {'text_already', digits(length)} end
if closed or length ~= offset then return {'text_from', digits(length)} end

if not part then
  part = {token = guard.token, name = name}
  parts[#parts + 1] = part
end
if #data > 0 then redis.call('APPEND', key, data) end
part.final = final and last or nil
part.cut = part.cut or cut_off
local list = listed(parts)
if redis.call('HGET', STATE, 'texts') ~= list then redis.call('HSET', STATE, 'texts', list) end
tell(p, rules, 0, nil,
  {token = part.token, name = name, offset = offset, final = final, cut = part.cut, data = data})
return {'text_applied', digits(last)}
