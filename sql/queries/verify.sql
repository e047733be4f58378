-- What verify reads of the ledger. It changes nothing.

-- current_positions --
-- The committed positions of a topology, in order: ordinary batches, and those whose records were given up.
SELECT position FROM txbatch.batch
 WHERE topology = :topology AND status = 'committed' AND replaced_by IS NULL ORDER BY position;

-- counted_version --
-- The version that counts for the position of a committed txid, and the code that counted it.
SELECT b.position, b.txid, b.kind, b.keys, b.reason, a.code
  FROM txbatch.batch b JOIN txbatch.batch asked USING (topology, position)
  LEFT JOIN txbatch.attempt a ON (a.topology, a.txid, a.attempt_id) = (b.topology, b.txid, b.committed_fence)
 WHERE asked.topology = :topology AND asked.txid = :txid AND b.status = 'committed' AND b.replaced_by IS NULL;

-- read_partitions --
-- What a batch read of each partition; a hole, and what was given up, is not read.
SELECT stream, partition, records, fingerprint::text AS fingerprint
  FROM txbatch.partition WHERE topology = :topology AND txid = :txid AND status = 'read';

-- horizons --
-- Up to which txid the contributions of each state are folded (R22).
SELECT state, horizon FROM txbatch.state WHERE topology = :topology;

-- unfilled_holes --
-- The partitions that a batch had to leave out, and that no batch has read since.
SELECT stream, partition, unreadable_since_txid AS txid FROM report.completeness
 WHERE topology = :topology AND unreadable_since_txid IS NOT NULL ORDER BY stream, partition;
