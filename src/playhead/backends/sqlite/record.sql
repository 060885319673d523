-- The statements of the record. A parameter that is a tenant may be '*', which stands for every tenant.

-- name: run
-- The columns in the order in which rows.py reads them.
SELECT r.seq, r.id, r.tenant, r.agent, r.status, r.resumable, r.max_attempts, r.cancel_after, r.labels, r.key,
    r.digest, r.created_at, r.updated_at, r.started_at, r.ended_at, r.token, r.crashes, r.owner, r.not_before,
    r.cancel_requested_at, r.cancel_by, r.cancel_reason, r.failure_code, r.failure_message, r.state, r.published,
    r.rev, r.epoch, r.minted_at, i.data, e.result, e.partial, e.lacking, p.beat_at
FROM run r
    LEFT JOIN run_input i ON i.seq = r.seq
    LEFT JOIN run_end e ON e.seq = r.seq
    LEFT JOIN process p ON p.process = r.owner

-- name: get_run
{run} WHERE r.id = ?1 AND (?2 = '*' OR r.tenant = ?2)

-- name: tenant_and_token
SELECT tenant, token FROM run WHERE id = ?1 AND (?2 = '*' OR tenant = ?2)

-- name: get_deduped
{run} WHERE r.tenant = ?1 AND r.scope = ?2 AND r.dedupe = ?3

-- name: next_seq
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'run'), 0) + 1

-- name: insert_run
INSERT INTO run (seq, id, tenant, agent, status, resumable, max_attempts, cancel_after, labels, key, scope, dedupe,
    digest, created_at, updated_at, token, crashes, not_before, rev, epoch, minted_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_input
INSERT INTO run_input (seq, data) VALUES (?, ?)

-- name: insert_label
INSERT INTO label (name, value, seq) VALUES (?, ?, ?)

-- name: update_run
UPDATE run SET status = ?, updated_at = ?, started_at = ?, ended_at = ?, token = ?, crashes = ?, owner = ?,
    not_before = ?, cancel_requested_at = ?, cancel_by = ?, cancel_reason = ?, failure_code = ?, failure_message = ?,
    state = ?, published = ?, rev = ?
WHERE seq = ?

-- name: update_run_epoch
UPDATE run SET epoch = ?, minted_at = ? WHERE seq = ?

-- name: put_end
INSERT INTO run_end (seq, result, partial, lacking) VALUES (?, ?, ?, ?)
ON CONFLICT (seq) DO UPDATE SET result = excluded.result, partial = excluded.partial, lacking = excluded.lacking

-- name: list_runs
-- The conditions follow, joined by AND.
{run} WHERE r.seq < ?

-- name: of_tenant
r.tenant = ?

-- name: of_status
r.status = ?

-- name: of_agent
r.agent = ?

-- name: of_key
r.key = ?

-- name: of_label
r.seq IN (SELECT l.seq FROM label l WHERE l.name = ? AND l.value = ?)

-- name: newest_first
ORDER BY r.seq DESC LIMIT ?

-- name: free_runs
{run} WHERE r.agent = ? AND r.owner IS NULL AND r.status IN ('queued', 'running', 'waiting') ORDER BY r.seq

-- name: owned_by
SELECT id, token, cancel_requested_at IS NOT NULL, cancel_reason FROM run WHERE owner = ?

-- name: owners
SELECT DISTINCT owner FROM run WHERE owner IS NOT NULL

-- name: runs_owned_by
{run} WHERE r.owner = ? ORDER BY r.seq

-- name: get_lease
SELECT process, expires, beat_at FROM process WHERE process = ?

-- name: put_lease
INSERT INTO process (process, expires, beat_at) VALUES (?, ?, ?)
ON CONFLICT (process) DO UPDATE SET expires = excluded.expires, beat_at = excluded.beat_at

-- name: delete_lease
DELETE FROM process WHERE process = ?

-- name: delete_leases
DELETE FROM process

-- name: insert_attempt
INSERT INTO attempt (run_id, token, tenant, process, started_at) VALUES (?, ?, ?, ?, ?)

-- name: end_attempt
UPDATE attempt SET ended_at = ?, outcome = ? WHERE run_id = ? AND token = ?

-- name: insert_fact
INSERT INTO fact (feed, rev, tenant, type, status, token, started_at, at, body, state, lacking)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: fact
SELECT feed, rev, type, body, status, token, started_at, state, at, lacking, id FROM fact

-- name: facts_after
{fact} WHERE feed = ? AND rev > ? ORDER BY rev LIMIT ?

-- name: oldest_rev
SELECT min(rev) FROM fact WHERE feed = ?

-- name: unsettled
SELECT feed FROM fact WHERE settled = 0 ORDER BY id

-- name: settle
UPDATE fact SET settled = 1
WHERE feed = ?1 AND rev <= ?2 AND settled = 0 AND EXISTS (SELECT 1 FROM run WHERE id = ?3 AND epoch = ?4)

-- name: unsettle
UPDATE fact SET settled = 0 WHERE feed = ? AND settled = 1

-- name: unheard
{fact} WHERE type = ?1 AND heard = 0 AND (holder IS NULL OR holder = ?2 OR held_until <= ?3) ORDER BY id LIMIT ?4

-- name: hold
UPDATE fact SET holder = ?, held_until = ? WHERE feed = ? AND rev = ? AND heard = 0

-- name: heard
UPDATE fact SET heard = 1 WHERE feed = ? AND rev = ? AND heard = 0

-- name: prune_facts
DELETE FROM fact WHERE id IN (SELECT id FROM fact WHERE settled = 1 AND at < ? ORDER BY at LIMIT ?)

-- name: interrupt
SELECT id, run_id, tenant, key, kind, payload, digest, token, created_at, deadline, status, decision, decided_by,
    closed_at
FROM interrupt

-- name: interrupts_of_run
{interrupt} WHERE run_id = ? ORDER BY number

-- name: get_interrupt
{interrupt} WHERE id = ?1 AND (?2 = '*' OR tenant = ?2)

-- name: list_interrupts
-- The conditions follow, joined by AND.
{interrupt} WHERE number > 0

-- name: interrupt_of_tenant
tenant = ?

-- name: interrupt_of_run
run_id = ?

-- name: interrupt_is_open
status = 'open'

-- name: oldest_first
ORDER BY number LIMIT ?

-- name: put_interrupt
INSERT INTO interrupt (id, run_id, tenant, key, kind, payload, digest, token, created_at, deadline, status, decision,
    decided_by, closed_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET token = excluded.token, status = excluded.status, decision = excluded.decision,
    decided_by = excluded.decided_by, closed_at = excluded.closed_at

-- name: runs_due
SELECT DISTINCT run_id FROM interrupt WHERE status = 'open' AND deadline IS NOT NULL AND deadline <= ? LIMIT ?

-- name: insert_audit
INSERT INTO audit (tenant, run_id, at, kind, actor, data) VALUES (?, ?, ?, ?, ?, ?)

-- name: audit_of_run
SELECT run_id, at, kind, actor, data FROM audit WHERE run_id = ?1 AND (?2 = '*' OR tenant = ?2) ORDER BY number LIMIT ?3

-- name: insert_archived
INSERT INTO archive (feed, event_id, type, version, body) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (feed, event_id) DO NOTHING

-- name: has_run
SELECT 1 FROM run WHERE id = ?

-- name: newest_archived
SELECT event_id FROM archive WHERE feed = ? ORDER BY number DESC LIMIT 1

-- name: archived_number
SELECT number FROM archive WHERE feed = ? AND event_id = ?

-- name: archived_before
SELECT event_id, type, body, version FROM archive WHERE feed = ? AND number < ? ORDER BY number DESC LIMIT ?

-- name: delete_archived
DELETE FROM archive WHERE feed = ?

-- name: delete_facts
DELETE FROM fact WHERE feed = ?

-- name: delete_run
DELETE FROM run WHERE seq = ?

-- name: delete_input
DELETE FROM run_input WHERE seq = ?

-- name: delete_end
DELETE FROM run_end WHERE seq = ?

-- name: delete_labels
DELETE FROM label WHERE seq = ?

-- name: delete_attempts
DELETE FROM attempt WHERE run_id = ?

-- name: delete_interrupts
DELETE FROM interrupt WHERE run_id = ?

-- name: delete_audit
DELETE FROM audit WHERE run_id = ?

-- name: delete_presence
DELETE FROM presence WHERE run_id = ?
