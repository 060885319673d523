-- Who watches which run: the statements of presence.py.

-- name: counts
-- The conditions of `disconnect.counts`, and the seconds of the policy.
SELECT cancel_after FROM run
WHERE id = ? AND cancel_after IS NOT NULL AND cancel_requested_at IS NULL
    AND status IN ('queued', 'running', 'waiting')

-- name: watch
INSERT INTO presence (run_id, process) VALUES (?, ?)
ON CONFLICT (run_id, process) DO UPDATE SET due_at = NULL WHERE due_at IS NOT NULL

-- name: put_due
INSERT INTO presence (run_id, process, due_at) VALUES (?, ?, ?)
ON CONFLICT (run_id, process) DO UPDATE SET due_at = excluded.due_at

-- name: forget
DELETE FROM presence WHERE run_id = ? AND process = ?

-- name: watching
-- The processes that have viewers: a step in the index for each, however many runs they watch.
WITH RECURSIVE one (process) AS (
    SELECT min(process) FROM presence WHERE due_at IS NULL
    UNION ALL
    SELECT (SELECT min(p.process) FROM presence p WHERE p.due_at IS NULL AND p.process > one.process)
    FROM one WHERE one.process IS NOT NULL
)
SELECT process FROM one WHERE process IS NOT NULL

-- name: watched_at
SELECT run_id, process FROM presence WHERE process = ? AND due_at IS NULL ORDER BY run_id LIMIT ?

-- name: first_due
SELECT run_id FROM presence WHERE due_at <= ? ORDER BY due_at LIMIT ?

-- name: of_run
SELECT due_at FROM presence WHERE run_id = ?

-- name: forget_due
DELETE FROM presence WHERE run_id = ? AND due_at <= ?
