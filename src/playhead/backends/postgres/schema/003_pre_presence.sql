-- For a run that is not to go on without viewers, and a process that it has or had viewers at: until when the run waits
-- on behalf of that process. None: as long as viewers are there.
CREATE TABLE playhead.presence (
    run_id text COLLATE "C" NOT NULL,
    process text COLLATE "C" NOT NULL,
    due_at bigint,
    PRIMARY KEY (run_id, process)
);

CREATE INDEX presence_watched ON playhead.presence (process, run_id) WHERE due_at IS NULL;
CREATE INDEX presence_due ON playhead.presence (due_at) WHERE due_at IS NOT NULL;
