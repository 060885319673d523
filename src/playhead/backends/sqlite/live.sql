-- name: projections
SELECT slot, epoch, rev, token, position, floor, archived, n, state_version, version, updated_at, weight, floor_weight,
       started_at, heartbeat_at, tag, status, state, feed
  FROM projection

-- name: load
{projections} WHERE feed = ?

-- name: stamp
SELECT stamp FROM projection WHERE slot = ?

-- name: slot
SELECT slot FROM projection WHERE feed = ?

-- name: open
INSERT INTO projection (feed, stamp, epoch, rev, token, status, position, tag, floor, archived, n, state_version, version,
                        started_at, heartbeat_at, updated_at, weight, floor_weight, final_at, state)
VALUES (?, NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?, ?)

-- name: append
INSERT INTO entry (slot, position, tag, prev, version, event_id, type, at, weight, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: published
UPDATE projection
   SET stamp = ?, position = ?, tag = ?, floor = ?, n = ?, state_version = ?, version = ?, heartbeat_at = ?, updated_at = ?,
       weight = ?, floor_weight = ?, state = ?
 WHERE slot = ?

-- name: told
UPDATE projection
   SET stamp = ?, position = ?, tag = ?, floor = ?, n = ?, state_version = ?, version = ?, heartbeat_at = ?, updated_at = ?,
       weight = ?, floor_weight = ?, state = ?, rev = ?, token = ?, status = ?, started_at = ?, final_at = ?
 WHERE slot = ?

-- name: floored
UPDATE projection SET stamp = ?, floor = ?, floor_weight = ? WHERE slot = ?

-- name: archived
UPDATE projection SET stamp = ?, floor = ?, floor_weight = ?, archived = ?, unarchived = ? WHERE slot = ?

-- name: unarchive
UPDATE projection SET unarchived = 1 WHERE slot = ?

-- name: first_heavy
SELECT position FROM entry WHERE slot = ? AND position > ? AND weight >= ? ORDER BY position LIMIT 1

-- name: first_young
SELECT position FROM entry WHERE slot = ? AND position > ? AND position <= ? AND at >= ? ORDER BY position LIMIT 1

-- name: weight
SELECT weight FROM entry WHERE slot = ? AND position = ?

-- name: cut
DELETE FROM entry WHERE slot = ? AND position <= ?

-- name: after
SELECT position, version, tag, prev, event_id, type, body
  FROM entry WHERE slot = ? AND position > ? AND position <= ? ORDER BY position LIMIT ?

-- name: newest
SELECT position, version, tag, prev, event_id, type, body
  FROM entry WHERE slot = ? AND position > ? AND position <= ? ORDER BY position DESC LIMIT ?

-- name: find
SELECT position, tag FROM entry
 WHERE slot = ? AND event_id = ? AND position > ? AND position <= ? ORDER BY position DESC LIMIT 1

-- name: unarchived
SELECT feed FROM projection WHERE unarchived = 1 AND floor < position AND archived < position ORDER BY slot LIMIT ?

-- name: aged
SELECT feed FROM projection CROSS JOIN entry ON entry.slot = projection.slot AND entry.position = projection.floor + 1
 WHERE at < ? ORDER BY archived > projection.floor DESC LIMIT ?

-- name: outlived
SELECT slot, feed FROM projection WHERE final_at IS NOT NULL AND final_at <= ? ORDER BY final_at LIMIT ?

-- name: left_alone
SELECT slot, feed FROM projection WHERE used_at IS NOT NULL AND used_at <= ? ORDER BY used_at LIMIT ?

-- name: use
UPDATE projection SET used_at = ? WHERE feed = ?

-- name: unswept
SELECT slot, feed FROM projection
 WHERE final_at IS NOT NULL AND swept = 0 AND final_at <= ? ORDER BY final_at LIMIT ?

-- name: sweep
UPDATE projection SET stamp = NULL, floor = position, floor_weight = weight, swept = 1, unarchived = 0 WHERE slot = ?

-- name: drop
DELETE FROM projection WHERE slot = ?

-- name: drop_entries
DELETE FROM entry WHERE slot = ?

-- name: drop_pieces
DELETE FROM piece WHERE part IN (SELECT id FROM part WHERE slot = ?1 AND (?2 IS NULL OR token < ?2))

-- name: drop_parts
DELETE FROM part WHERE slot = ?1 AND (?2 IS NULL OR token < ?2)

-- name: part
SELECT id, length, final, truncated FROM part WHERE slot = ? AND token = ? AND name = ?

-- name: begin_part
INSERT INTO part (slot, token, name, length, final, truncated) VALUES (?, ?, ?, ?, ?, ?)

-- name: grow_part
UPDATE part SET length = ?, final = ?, truncated = ? WHERE id = ?

-- name: drop_part
DELETE FROM part WHERE id = ?

-- name: drop_part_pieces
DELETE FROM piece WHERE part = ?

-- name: add_piece
INSERT OR REPLACE INTO piece (part, offset, data) VALUES (?, ?, ?)

-- name: parts
SELECT id, token, name, length, final, truncated FROM part WHERE slot = ? ORDER BY id

-- name: pieces
SELECT offset, data FROM piece WHERE part = ? ORDER BY offset

-- name: lengths
SELECT feed, part.token, name, length FROM projection CROSS JOIN part USING (slot)
