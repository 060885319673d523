-- Who watches which run: the statements of presence.py, one each.

-- name: count
-- The conditions of `disconnect.counts`.
r.cancel_after IS NOT NULL AND r.cancel_requested_at IS NULL AND r.status IN ('queued', 'running', 'waiting')

-- name: of_those
-- Of these runs those that count, with the seconds of their policy.
SELECT r.id, r.cancel_after FROM playhead.run r WHERE r.id = ANY (%(ids)s::text[]) AND {count}

-- name: watch
-- Rows are taken in their order, whoever changes them.
INSERT INTO playhead.presence (run_id, process)
SELECT r.id, %(process)s FROM playhead.run r
WHERE r.id = ANY (%(ids)s::text[]) AND {count}
    AND NOT EXISTS (
        SELECT 1 FROM playhead.presence p WHERE p.run_id = r.id AND p.process = %(process)s AND p.due_at IS NULL
    )
ORDER BY r.id
ON CONFLICT (run_id, process) DO UPDATE SET due_at = NULL

-- name: put_due
INSERT INTO playhead.presence (run_id, process, due_at)
SELECT w.run_id, w.process, w.due_at
FROM unnest(%(ids)s::text[], %(processes)s::text[], %(dues)s::bigint[]) AS w (run_id, process, due_at)
ORDER BY w.run_id, w.process
ON CONFLICT (run_id, process) DO UPDATE SET due_at = excluded.due_at

-- name: forget
DELETE FROM playhead.presence WHERE run_id = ANY (%(ids)s::text[]) AND process = %(process)s

-- name: watching
-- The processes that have viewers: a step in the index for each, however many runs they watch.
WITH RECURSIVE one (process) AS (
    SELECT min(p.process) FROM playhead.presence p WHERE p.due_at IS NULL
    UNION ALL
    SELECT (SELECT min(p.process) FROM playhead.presence p WHERE p.due_at IS NULL AND p.process > one.process)
    FROM one WHERE one.process IS NOT NULL
)
SELECT process FROM one WHERE process IS NOT NULL

-- name: watched_at
-- What another process has in hand is left for the next time.
SELECT p.run_id, p.process, r.cancel_after
FROM playhead.presence p
    LEFT JOIN playhead.run r ON r.id = p.run_id
WHERE p.process = ANY (%(processes)s::text[]) AND p.due_at IS NULL
ORDER BY p.run_id, p.process LIMIT %(limit)s
FOR UPDATE OF p SKIP LOCKED

-- name: first_due
SELECT run_id, due_at FROM playhead.presence WHERE due_at IS NOT NULL ORDER BY due_at LIMIT %(limit)s

-- name: of_run
SELECT process, due_at FROM playhead.presence WHERE run_id = %(id)s ORDER BY process FOR UPDATE

-- name: forget_due
DELETE FROM playhead.presence WHERE run_id = %(id)s AND due_at <= %(at)s
