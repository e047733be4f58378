-- The late records that a batch met while it read: of intervals of earlier batches, in files that arrived since the last look.
ALTER TABLE txbatch.batch ADD COLUMN came_late json;

CREATE INDEX batch_came_late ON txbatch.batch (topology, txid) WHERE CAST(came_late AS text) <> '{}';
