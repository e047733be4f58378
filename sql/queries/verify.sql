-- What verify reads of the ledger. It changes nothing.

-- current_positions --
-- The committed positions of a topology, in order: ordinary batches, and those whose records were given up. `folded`: nothing
-- that the version contributed is kept (R22).
SELECT b.position, b.txid <= h.horizon AS folded
  FROM txbatch.batch b, (SELECT COALESCE(min(horizon), 0) AS horizon FROM txbatch.state WHERE topology = :topology) h
 WHERE b.topology = :topology AND b.status = 'committed' AND b.replaced_by IS NULL ORDER BY b.position;

-- counted_version --
-- The version that counts for the position of a committed txid, and the code that counted it; where a rebuild did, also its
-- plan and what that read.
SELECT b.position, b.txid, b.kind, b.keys, b.reason, COALESCE(r.code, a.code) AS code, r.metadata, r.streams
  FROM txbatch.batch b JOIN txbatch.batch asked USING (topology, position)
  LEFT JOIN txbatch.attempt a ON (a.topology, a.txid, a.attempt_id) = (b.topology, b.txid, b.committed_fence)
  LEFT JOIN LATERAL (
       SELECT n.code, d.metadata, d.streams
         FROM (SELECT rebuild, code FROM txbatch.rebuild
                WHERE topology = b.topology AND status = 'swapped' ORDER BY rebuild DESC LIMIT 1) n
         JOIN txbatch.rebuilt d USING (rebuild) WHERE d.txid = b.txid AND d.metadata IS NOT NULL) r ON true
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
