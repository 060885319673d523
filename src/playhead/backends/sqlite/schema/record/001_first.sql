-- The record. Times are wall-clock milliseconds, except `process.expires`, which is of a clock that never steps.
-- Large values have tables of their own: a change of status does not write a run's input again.

CREATE TABLE run (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    agent TEXT NOT NULL,
    status TEXT NOT NULL,
    resumable INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    cancel_after REAL,
    labels BLOB NOT NULL,
    key TEXT,
    scope TEXT NOT NULL,
    dedupe TEXT,
    digest TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER,
    token INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    owner TEXT,
    not_before INTEGER NOT NULL,
    cancel_requested_at INTEGER,
    cancel_by TEXT,
    cancel_reason TEXT,
    failure_code TEXT,
    failure_message TEXT,
    state BLOB,
    rev INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    minted_at INTEGER NOT NULL
);

CREATE UNIQUE INDEX run_dedupe ON run (tenant, scope, dedupe) WHERE dedupe IS NOT NULL;
CREATE INDEX run_by_tenant ON run (tenant, seq);
CREATE INDEX run_by_agent ON run (tenant, agent, seq);
CREATE INDEX run_by_status ON run (status, tenant, seq);
CREATE INDEX run_by_key ON run (tenant, key, seq) WHERE key IS NOT NULL;
-- What a worker looks through, and what a reaper does.
CREATE INDEX run_free ON run (agent, seq) WHERE owner IS NULL AND status IN ('queued', 'running', 'waiting');
CREATE INDEX run_owned ON run (owner) WHERE owner IS NOT NULL;

CREATE TABLE run_input (seq INTEGER PRIMARY KEY, data BLOB NOT NULL);

CREATE TABLE run_end (seq INTEGER PRIMARY KEY, result BLOB, partial BLOB);

CREATE TABLE label (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (name, value, seq)
) WITHOUT ROWID;

CREATE INDEX label_by_run ON label (seq);

CREATE TABLE attempt (
    run_id TEXT NOT NULL,
    token INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    process TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    outcome TEXT,
    PRIMARY KEY (run_id, token)
) WITHOUT ROWID;

-- A lease: `expires` in steady milliseconds, `beat_at` for display.
CREATE TABLE process (
    process TEXT PRIMARY KEY,
    expires INTEGER NOT NULL,
    beat_at INTEGER NOT NULL
) WITHOUT ROWID;

-- The outbox. `settled`: projected under the record's current epoch. `heard`: a listener took it.
CREATE TABLE fact (
    id INTEGER PRIMARY KEY,
    feed TEXT NOT NULL,
    rev INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    type TEXT NOT NULL,
    status TEXT NOT NULL,
    token INTEGER NOT NULL,
    started_at INTEGER,
    at INTEGER NOT NULL,
    settled INTEGER NOT NULL DEFAULT 0,
    heard INTEGER NOT NULL DEFAULT 0,
    body BLOB NOT NULL,
    state BLOB,
    UNIQUE (feed, rev)
);

CREATE INDEX fact_unsettled ON fact (id, feed) WHERE settled = 0;
CREATE INDEX fact_settled ON fact (at) WHERE settled = 1;
CREATE INDEX fact_unheard ON fact (type, id) WHERE heard = 0;

CREATE TABLE interrupt (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    run_id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    payload BLOB NOT NULL,
    digest TEXT NOT NULL,
    token INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    deadline INTEGER,
    status TEXT NOT NULL,
    decision BLOB,
    decided_by TEXT,
    closed_at INTEGER
);

CREATE INDEX interrupt_by_run ON interrupt (run_id, number);
CREATE INDEX interrupt_open ON interrupt (tenant, number) WHERE status = 'open';
CREATE INDEX interrupt_due ON interrupt (deadline) WHERE status = 'open' AND deadline IS NOT NULL;

CREATE TABLE archive (
    number INTEGER PRIMARY KEY,
    feed TEXT NOT NULL,
    event_id TEXT NOT NULL,
    type TEXT NOT NULL,
    version INTEGER NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (feed, event_id)
);

CREATE INDEX archive_by_feed ON archive (feed, number);

CREATE TABLE audit (
    number INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    run_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    actor TEXT NOT NULL,
    data BLOB NOT NULL
);

CREATE INDEX audit_by_run ON audit (run_id, number);
