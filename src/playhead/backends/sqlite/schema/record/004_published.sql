-- How many events the latest attempt was heard to have published: the fact behind them tells of it.
ALTER TABLE run ADD COLUMN published INTEGER NOT NULL DEFAULT 0;
