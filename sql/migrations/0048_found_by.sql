-- Whether a look back asked for a restate, and the batch that met the late records. Until now the reason alone told.
ALTER TABLE txbatch.batch ADD COLUMN found_by bigint;

UPDATE txbatch.batch SET found_by = position WHERE kind = 'restate' AND reason LIKE 'lookback: %';

ALTER TABLE txbatch.batch ADD CONSTRAINT batch_found_by_check CHECK (found_by IS NULL OR kind = 'restate');
