-- The verdict that publishes and text share: core's `judge_guard`.

local function take_guard()
  local epoch, token, rev, acked_n, acked_state = string.match(take(), '^(%d+):(%d+):(%d+):(%d+):(%d+)$')
  if not epoch then error('BADARG ' .. taken) end
  local guard = {
    epoch = exact(epoch), token = exact(token), rev = exact(rev), acked_n = exact(acked_n),
    acked_state = exact(acked_state),
  }
  if not (guard.epoch and guard.token and guard.rev and guard.acked_n and guard.acked_state) then
    error('BADARG ' .. taken)
  end
  return guard
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
