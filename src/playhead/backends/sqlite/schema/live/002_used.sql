-- When somebody last wrote to a projection that ends by being left alone, or watched it; NULL for all others.
ALTER TABLE projection ADD COLUMN used_at INTEGER;

CREATE INDEX projection_used ON projection (used_at) WHERE used_at IS NOT NULL;
