-- For a run that is not to go on without viewers, and a process that it has or had viewers at: until when the run waits
-- on behalf of that process. None: as long as viewers are there.
CREATE TABLE presence (
    run_id TEXT NOT NULL,
    process TEXT NOT NULL,
    due_at INTEGER,
    PRIMARY KEY (run_id, process)
) WITHOUT ROWID;

CREATE INDEX presence_watched ON presence (process, run_id) WHERE due_at IS NULL;
CREATE INDEX presence_due ON presence (due_at) WHERE due_at IS NOT NULL;
