-- The statements of the record, one each. A parameter that is a tenant may be '*', which stands for every tenant.

-- name: now
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: run
-- The columns in the order in which rows.py reads them.
SELECT r.seq, r.id, r.tenant, r.agent, r.status, r.resumable, r.max_attempts, r.cancel_after, r.labels, r.key,
    r.digest, r.created_at, r.updated_at, r.started_at, r.ended_at, r.token, r.crashes, r.owner, r.not_before,
    r.cancel_requested_at, r.cancel_by, r.cancel_reason, r.failure_code, r.failure_message, r.state, r.published,
    r.rev, r.epoch, r.minted_at, i.data, e.result, e.partial, e.lacking, p.beat_at
FROM playhead.run r
    LEFT JOIN playhead.run_input i ON i.seq = r.seq
    LEFT JOIN playhead.run_end e ON e.seq = r.seq
    LEFT JOIN playhead.process p ON p.process = r.owner AND p.ttl_ms > 0

-- name: of_id
r.id = %(id)s AND (%(tenant)s = '*' OR r.tenant = %(tenant)s)

-- name: get_run
{run} WHERE {of_id}

-- name: lock_run
-- By itself: a statement sees nothing that was committed while it waited for the lock.
SELECT r.seq FROM playhead.run r WHERE {of_id} FOR UPDATE

-- name: lock_run_if_free
SELECT r.seq FROM playhead.run r WHERE {of_id} FOR UPDATE SKIP LOCKED

-- name: share_run
-- Against a new epoch and a new attempt until the end of the transaction.
SELECT r.tenant, r.token FROM playhead.run r WHERE {of_id} FOR SHARE

-- name: get_deduped
{run} WHERE r.tenant = %(tenant)s AND r.scope = %(scope)s AND r.dedupe = %(dedupe)s

-- name: insert_run
INSERT INTO playhead.run (id, tenant, agent, status, resumable, max_attempts, cancel_after, labels, key, scope, dedupe,
    digest, created_at, updated_at, token, crashes, not_before, rev, epoch, minted_at)
VALUES (%(id)s, %(tenant)s, %(agent)s, %(status)s, %(resumable)s, %(max_attempts)s, %(cancel_after)s, %(labels)s,
    %(key)s, %(scope)s, %(dedupe)s, %(digest)s, %(created_at)s, %(updated_at)s, %(token)s, %(crashes)s,
    %(not_before)s, %(rev)s, %(epoch)s, %(minted_at)s)
ON CONFLICT DO NOTHING
RETURNING seq

-- name: insert_input
INSERT INTO playhead.run_input (seq, data) VALUES (%(seq)s, %(data)s)

-- name: insert_label
INSERT INTO playhead.label (name, value, seq) VALUES (%(name)s, %(value)s, %(seq)s)

-- name: update_run
UPDATE playhead.run SET status = %(status)s, updated_at = %(updated_at)s, started_at = %(started_at)s,
    ended_at = %(ended_at)s, token = %(token)s, crashes = %(crashes)s, owner = %(owner)s, not_before = %(not_before)s,
    cancel_requested_at = %(cancel_requested_at)s, cancel_by = %(cancel_by)s, cancel_reason = %(cancel_reason)s,
    failure_code = %(failure_code)s, failure_message = %(failure_message)s, state = %(state)s,
    published = %(published)s, rev = %(rev)s
WHERE seq = %(seq)s

-- name: update_run_epoch
UPDATE playhead.run SET epoch = %(epoch)s, minted_at = %(minted_at)s WHERE seq = %(seq)s

-- name: put_end
INSERT INTO playhead.run_end (seq, result, partial, lacking)
VALUES (%(seq)s, %(result)s, %(partial)s, %(lacking)s)
ON CONFLICT (seq) DO UPDATE SET result = excluded.result, partial = excluded.partial, lacking = excluded.lacking

-- name: list_runs
-- The conditions follow, joined by AND.
{run} WHERE r.seq < %(before)s

-- name: weigh_runs
-- The same runs, by their weights alone: the length of a large value is known without reading it.
SELECT r.seq, coalesce(sum(coalesce(length(i.data), 0) + coalesce(length(e.result), 0) + coalesce(length(e.partial), 0))
    OVER (ORDER BY r.seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS newer
FROM playhead.run r
    LEFT JOIN playhead.run_input i ON i.seq = r.seq
    LEFT JOIN playhead.run_end e ON e.seq = r.seq
WHERE r.seq < %(before)s

-- name: lightest_runs
{run} WHERE r.seq = ANY (ARRAY(SELECT w.seq FROM (WEIGHED) AS w WHERE w.newer < %(most_bytes)s)) ORDER BY r.seq DESC

-- name: of_tenant
r.tenant = %(tenant)s

-- name: of_status
r.status = %(status)s

-- name: of_agent
r.agent = %(agent)s

-- name: of_key
r.key = %(key)s

-- name: of_label
r.seq IN (SELECT l.seq FROM playhead.label l WHERE l.name = %(name)s AND l.value = %(value)s)

-- name: newest_first
ORDER BY r.seq DESC LIMIT %(limit)s

-- name: free_runs
-- Candidates of each agent, of which those that nobody else holds are locked, oldest first. Beyond `low` and up to
-- `high` a run waits for its next attempt.
SELECT r.seq FROM playhead.run r
WHERE r.seq = ANY (ARRAY(
        SELECT f.seq
        FROM unnest(%(agents)s::text[]) AS a (agent)
            CROSS JOIN LATERAL (
                SELECT n.seq FROM playhead.run n
                WHERE n.agent = a.agent AND n.owner IS NULL AND n.status IN ('queued', 'running', 'waiting')
                    AND n.seq > %(after)s AND NOT (n.not_before > %(low)s AND n.not_before <= %(high)s)
                ORDER BY n.seq LIMIT %(look)s
            ) f
        ORDER BY f.seq LIMIT %(look)s
    ))
    AND r.owner IS NULL AND r.status IN ('queued', 'running', 'waiting')
ORDER BY r.seq LIMIT %(limit)s
FOR UPDATE SKIP LOCKED

-- name: runs_of
{run} WHERE r.seq = ANY (%(seqs)s::bigint[]) ORDER BY r.seq

-- name: started_before
-- Attempts that a process began, and of which it did not learn.
{run} WHERE r.id = ANY (%(ids)s::text[]) AND r.owner = %(process)s ORDER BY r.seq

-- name: owned_by
SELECT id, token, cancel_requested_at IS NOT NULL, cancel_reason FROM playhead.run WHERE owner = %(process)s

-- name: runs_without_lease
{run} WHERE r.owner IS NOT NULL AND r.owner <> ALL (%(held)s::text[]) ORDER BY r.seq LIMIT %(limit)s

-- name: leases
SELECT process, beat, ttl_ms, beat_at FROM playhead.process

-- name: share_lease
SELECT process, beat, ttl_ms, beat_at FROM playhead.process WHERE process = %(process)s FOR SHARE

-- name: put_lease
-- A row that was removed in between never goes back to a number that it had.
INSERT INTO playhead.process AS p (process, beat, ttl_ms, beat_at) VALUES (%(process)s, %(at)s, %(ttl)s, %(at)s)
ON CONFLICT (process) DO UPDATE SET beat = p.beat + 1, ttl_ms = excluded.ttl_ms, beat_at = excluded.beat_at
RETURNING beat

-- name: end_lease
UPDATE playhead.process SET beat = beat + 1, ttl_ms = 0 WHERE process = %(process)s

-- name: forget_leases
DELETE FROM playhead.process p
WHERE p.beat_at < %(before)s AND NOT EXISTS (SELECT 1 FROM playhead.run r WHERE r.owner = p.process)

-- name: insert_attempt
INSERT INTO playhead.attempt (run_id, token, tenant, process, started_at)
VALUES (%(run_id)s, %(token)s, %(tenant)s, %(process)s, %(started_at)s)

-- name: end_attempt
UPDATE playhead.attempt SET ended_at = %(at)s, outcome = %(outcome)s WHERE run_id = %(run_id)s AND token = %(token)s

-- name: insert_fact
INSERT INTO playhead.fact (feed, rev, tenant, type, status, token, started_at, at, body, state, lacking)
VALUES (%(feed)s, %(rev)s, %(tenant)s, %(type)s, %(status)s, %(token)s, %(started_at)s, %(at)s, %(body)s, %(state)s,
    %(lacking)s)

-- name: fact
SELECT f.feed, f.rev, f.type, f.body, f.status, f.token, f.started_at, f.state, f.at, f.lacking FROM playhead.fact f

-- name: facts_after
{fact} WHERE f.feed = %(feed)s AND f.rev > %(rev)s ORDER BY f.rev LIMIT %(limit)s

-- name: oldest_rev
SELECT min(rev) FROM playhead.fact WHERE feed = %(feed)s

-- name: unsettled
SELECT id, feed FROM playhead.fact WHERE NOT settled AND id > %(after)s ORDER BY id LIMIT %(limit)s

-- name: settle
-- Facts of one feed are locked in their order, whoever changes them.
UPDATE playhead.fact f SET settled = true
FROM (
        SELECT id FROM playhead.fact
        WHERE feed = %(feed)s AND rev <= %(rev)s AND NOT settled
            AND EXISTS (SELECT 1 FROM playhead.run WHERE id = %(id)s AND epoch = %(epoch)s)
        ORDER BY rev FOR UPDATE
    ) AS found
WHERE f.id = found.id

-- name: unsettle
UPDATE playhead.fact f SET settled = false
FROM (SELECT id FROM playhead.fact WHERE feed = %(feed)s AND settled ORDER BY rev FOR UPDATE) AS found
WHERE f.id = found.id

-- name: unheard
SELECT f.feed, f.rev, f.type, f.body, f.status, f.token, f.started_at, f.state, f.at, f.lacking
FROM unnest(%(types)s::text[]) AS t (type)
    CROSS JOIN LATERAL (
        SELECT * FROM playhead.fact n
        WHERE n.type = t.type AND NOT n.heard
            AND (n.holder IS NULL OR n.holder = %(holder)s OR n.held_until <= %(now)s)
        ORDER BY n.id LIMIT %(limit)s
    ) f
ORDER BY f.id LIMIT %(limit)s

-- name: hold
-- Of the facts that were just looked at, those that nobody else took meanwhile; whoever takes one now is not waited for.
UPDATE playhead.fact f SET holder = %(holder)s, held_until = %(until)s
FROM (
        SELECT n.id
        FROM unnest(%(feeds)s::text[], %(revs)s::bigint[]) AS h (feed, rev)
            JOIN playhead.fact n ON n.feed = h.feed AND n.rev = h.rev
        WHERE NOT n.heard AND (n.holder IS NULL OR n.holder = %(holder)s OR n.held_until <= %(now)s)
        ORDER BY n.feed, n.rev FOR UPDATE OF n SKIP LOCKED
    ) AS found
WHERE f.id = found.id
RETURNING f.feed, f.rev

-- name: heard
UPDATE playhead.fact f SET heard = true
FROM (
        SELECT n.id
        FROM unnest(%(feeds)s::text[], %(revs)s::bigint[]) AS h (feed, rev)
            JOIN playhead.fact n ON n.feed = h.feed AND n.rev = h.rev
        WHERE NOT n.heard
        ORDER BY n.feed, n.rev FOR UPDATE OF n
    ) AS found
WHERE f.id = found.id

-- name: prune_facts
-- What another process is about to change is left for the next time.
WITH gone AS (
    DELETE FROM playhead.fact
    WHERE id IN (
            SELECT id FROM playhead.fact WHERE settled AND at < %(before)s
            ORDER BY at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
        )
    RETURNING 1
)
SELECT count(*) FROM gone

-- name: interrupt
SELECT id, run_id, tenant, key, kind, payload, digest, token, created_at, deadline, status, decision, decided_by,
    closed_at
FROM playhead.interrupt

-- name: interrupts_of_run
{interrupt} WHERE run_id = %(id)s ORDER BY number

-- name: get_interrupt
{interrupt} WHERE id = %(id)s AND (%(tenant)s = '*' OR tenant = %(tenant)s)

-- name: list_interrupts
-- The conditions follow, joined by AND.
{interrupt} WHERE number > 0

-- name: interrupt_of_tenant
tenant = %(tenant)s

-- name: interrupt_of_run
run_id = %(run_id)s

-- name: interrupt_is_open
status = 'open'

-- name: oldest_first
ORDER BY number LIMIT %(limit)s

-- name: put_interrupt
INSERT INTO playhead.interrupt (id, run_id, tenant, key, kind, payload, digest, token, created_at, deadline, status,
    decision, decided_by, closed_at)
VALUES (%(id)s, %(run_id)s, %(tenant)s, %(key)s, %(kind)s, %(payload)s, %(digest)s, %(token)s, %(created_at)s,
    %(deadline)s, %(status)s, %(decision)s, %(decided_by)s, %(closed_at)s)
ON CONFLICT (id) DO UPDATE SET token = excluded.token, status = excluded.status, decision = excluded.decision,
    decided_by = excluded.decided_by, closed_at = excluded.closed_at

-- name: runs_due
SELECT run_id, min(deadline) FROM playhead.interrupt
WHERE status = 'open' AND deadline IS NOT NULL AND deadline <= %(at)s
GROUP BY run_id ORDER BY min(deadline), run_id LIMIT %(limit)s

-- name: insert_audit
INSERT INTO playhead.audit (tenant, run_id, at, kind, actor, data)
VALUES (%(tenant)s, %(run_id)s, %(at)s, %(kind)s, %(actor)s, %(data)s)

-- name: audit_of_run
SELECT run_id, at, kind, actor, data FROM playhead.audit
WHERE run_id = %(run_id)s AND (%(tenant)s = '*' OR tenant = %(tenant)s)
ORDER BY number LIMIT %(limit)s

-- name: insert_archived
INSERT INTO playhead.archive (feed, event_id, type, version, body)
VALUES (%(feed)s, %(event_id)s, %(type)s, %(version)s, %(body)s)
ON CONFLICT (feed, event_id) DO NOTHING

-- name: lock_archive
-- Of this feed, until the end of the transaction; by itself, so that what follows sees what was waited for.
SELECT pg_advisory_xact_lock(hashtextextended(%(feed)s, 0))

-- name: has_run
SELECT 1 FROM playhead.run WHERE id = %(id)s

-- name: newest_archived
SELECT event_id FROM playhead.archive WHERE feed = %(feed)s ORDER BY number DESC LIMIT 1

-- name: archived_before
SELECT event_id, type, body, version FROM playhead.archive WHERE feed = %(feed)s ORDER BY number DESC LIMIT %(limit)s

-- name: archived_before_event
SELECT a.event_id, a.type, a.body, a.version FROM playhead.archive a
WHERE a.feed = %(feed)s
    AND a.number < (SELECT b.number FROM playhead.archive b WHERE b.feed = %(feed)s AND b.event_id = %(event_id)s)
ORDER BY a.number DESC LIMIT %(limit)s

-- name: delete_archived
DELETE FROM playhead.archive WHERE feed = %(feed)s

-- name: delete_facts
DELETE FROM playhead.fact WHERE feed = %(feed)s

-- name: delete_run
DELETE FROM playhead.run WHERE seq = %(seq)s

-- name: delete_input
DELETE FROM playhead.run_input WHERE seq = %(seq)s

-- name: delete_end
DELETE FROM playhead.run_end WHERE seq = %(seq)s

-- name: delete_labels
DELETE FROM playhead.label WHERE seq = %(seq)s

-- name: delete_attempts
DELETE FROM playhead.attempt WHERE run_id = %(id)s

-- name: delete_interrupts
DELETE FROM playhead.interrupt WHERE run_id = %(id)s

-- name: delete_audit
DELETE FROM playhead.audit WHERE run_id = %(id)s

-- name: delete_presence
DELETE FROM playhead.presence WHERE run_id = %(id)s
