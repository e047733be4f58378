-- A committed batch may be counted again by another txid (R17), and contributions may be folded into one row a key (R22).
ALTER TABLE txbatch.batch ADD COLUMN replaced_by bigint;
ALTER TABLE txbatch.batch ADD COLUMN requested_by text;
ALTER TABLE txbatch.batch ADD CONSTRAINT batch_replaced_check CHECK (replaced_by IS NULL OR (replaced_by > txid AND status = 'committed'));
CREATE INDEX batch_replaced ON txbatch.batch (topology, txid, replaced_by) WHERE replaced_by IS NOT NULL;
CREATE INDEX batch_restate ON txbatch.batch (topology, position, txid) WHERE kind = 'restate';
ALTER TABLE txbatch.state ADD COLUMN horizon bigint NOT NULL DEFAULT 0 CHECK (horizon >= 0);
CREATE SCHEMA contribution_base;
COMMENT ON SCHEMA contribution_base IS 'What retention folded of the contributions: one row per key.';
