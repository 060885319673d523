-- Events of an attempt that ended while the live store was away, one JSON object a line: with the fact that takes them
-- along, or with the run until there is one.
ALTER TABLE fact ADD COLUMN lacking BLOB;
ALTER TABLE run_end ADD COLUMN lacking BLOB;
