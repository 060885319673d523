-- Which process tells a fact to its listeners, and until when that keeps others from it.
ALTER TABLE fact ADD COLUMN holder TEXT;
ALTER TABLE fact ADD COLUMN held_until INTEGER NOT NULL DEFAULT 0;
