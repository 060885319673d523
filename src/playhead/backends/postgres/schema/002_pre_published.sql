-- How many events the latest attempt was heard to have published: the fact behind them tells of it.
ALTER TABLE playhead.run ADD COLUMN published bigint NOT NULL DEFAULT 0;
