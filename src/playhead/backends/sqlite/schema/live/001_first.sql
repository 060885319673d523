-- One row per feed. The fields that every publish moves stand before `state`, which is the only long one.
-- `status` also says whether the projection is final, and `token` which attempt the snapshot is of.
CREATE TABLE projection (
    slot          INTEGER PRIMARY KEY,
    feed          TEXT NOT NULL UNIQUE,
    stamp         INTEGER,                     -- another one with every write to this row
    epoch         INTEGER NOT NULL,
    rev           INTEGER NOT NULL,
    token         INTEGER NOT NULL,
    status        TEXT NOT NULL,
    position      INTEGER NOT NULL,
    tag           TEXT NOT NULL,
    floor         INTEGER NOT NULL,
    archived      INTEGER NOT NULL,
    n             INTEGER NOT NULL,
    state_version INTEGER NOT NULL,
    version       INTEGER NOT NULL,
    started_at    INTEGER,
    heartbeat_at  INTEGER,
    updated_at    INTEGER NOT NULL,
    weight        INTEGER NOT NULL,            -- bytes of all bodies appended in this epoch
    floor_weight  INTEGER NOT NULL,            -- bytes of those up to the floor
    final_at      INTEGER,
    swept         INTEGER NOT NULL DEFAULT 0,  -- 1 once the timeline outlived its time
    unarchived    INTEGER NOT NULL DEFAULT 0,  -- 1 while `archived` is below `position`
    state         BLOB NOT NULL
);

-- On a column that seldom changes: an index on `position` itself would be written with every publish.
CREATE INDEX projection_unarchived ON projection (slot) WHERE unarchived = 1;
CREATE INDEX projection_final ON projection (final_at) WHERE final_at IS NOT NULL;
CREATE INDEX projection_unswept ON projection (final_at) WHERE final_at IS NOT NULL AND swept = 0;

-- In the order of their writing, whatever feed they are of: with each timeline in a place of its own, every commit
-- would touch a wide page per feed, and take twice as long.
-- `weight` counts up through the timeline, so that a byte bound is found without adding anything up.
CREATE TABLE entry (
    id       INTEGER PRIMARY KEY,
    slot     INTEGER NOT NULL,
    position INTEGER NOT NULL,
    tag      TEXT NOT NULL,
    prev     TEXT NOT NULL,
    version  INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    type     TEXT NOT NULL,
    at       INTEGER NOT NULL,
    weight   INTEGER NOT NULL,
    body     BLOB NOT NULL
);

CREATE INDEX entry_place ON entry (slot, position);
CREATE INDEX entry_event ON entry (slot, event_id);

-- The order of `id` is the order in which the parts began.
CREATE TABLE part (
    id        INTEGER PRIMARY KEY,
    slot      INTEGER NOT NULL,
    token     INTEGER NOT NULL,
    name      TEXT NOT NULL,
    length    INTEGER NOT NULL,
    final     INTEGER NOT NULL,
    truncated INTEGER NOT NULL,
    UNIQUE (slot, token, name)
);

-- A row per append: growing one value instead would copy it every time.
CREATE TABLE piece (
    part   INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    data   BLOB NOT NULL,
    PRIMARY KEY (part, offset)
) WITHOUT ROWID;
