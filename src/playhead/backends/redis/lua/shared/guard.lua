-- The verdict that publishes and text share: core's `judge_guard`.

local function take_guard()
  return {
    epoch = take_whole(), token = take_whole(), rev = take_whole(), acked_n = take_whole(), acked_state = take_whole(),
  }
end

local function judge_guard(p, guard)
  if not p or p.epoch < guard.epoch then return {'needs_rebuild', p and digits(p.epoch) or '0'} end
  if p.epoch > guard.epoch then return {'wrong_epoch', digits(p.epoch)} end
  if guard.token == p.token and (guard.acked_n > p.n or guard.acked_state > p.state_version) then
    return {'needs_rebuild', digits(p.epoch)}
  end
  if p.final_at then return {'final'} end
  if guard.token < p.token then return {'stale', digits(p.token)} end
  if guard.token > p.token or guard.rev > p.rev then return {'behind', digits(p.rev)} end
  return nil
end
