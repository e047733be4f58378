-- What verify reads of the ledger. It changes nothing.

-- current_positions --
-- The committed positions of a topology, in order: ordinary batches, and those whose records were given up. `folded`: nothing
-- that the version contributed is kept (R22).
SELECT b.position, b.txid <= h.horizon AS folded
  FROM txbatch.batch b, (SELECT COALESCE(min(horizon), 0) AS horizon FROM txbatch.state WHERE topology = :topology) h
 WHERE b.topology = :topology AND b.status = 'committed' AND b.replaced_by IS NULL ORDER BY b.position;

-- counted_versions --
-- The versions that count for the positions of committed txids, and the code that counted each; where a rebuild did, also its
-- plan and what that read.
SELECT b.position, b.txid, b.kind, b.keys, b.reason, COALESCE(r.code, a.code) AS code, r.metadata, r.streams
  FROM txbatch.batch asked
  JOIN txbatch.batch b ON b.topology = asked.topology
   AND (b.txid = asked.position OR b.kind = 'restate' AND b.position = asked.position)
  LEFT JOIN txbatch.attempt a ON (a.topology, a.txid, a.attempt_id) = (b.topology, b.txid, b.committed_fence)
  LEFT JOIN LATERAL (
       SELECT n.code, d.metadata, d.streams
         FROM (SELECT rebuild, code FROM txbatch.rebuild
                WHERE topology = b.topology AND status = 'swapped' ORDER BY rebuild DESC LIMIT 1) n
         JOIN txbatch.rebuilt d USING (rebuild) WHERE d.txid = b.txid AND d.metadata IS NOT NULL) r ON true
 WHERE asked.topology = :topology AND asked.txid = ANY (:txids) AND b.status = 'committed' AND b.replaced_by IS NULL;

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

-- audited_batches --
-- All that the ledger says of each committed txid; where a rebuild counts, also what that said. Nobody else may write meanwhile.
SELECT b.txid, b.position, b.kind, b.replaced_by, b.metadata, b.records, b.keys, b.kept, b.late, b.ahead, b.ahead_to, b.committed_at,
       b.succeeded_at, lower(b.data_interval) AS interval_start, upper(b.data_interval) AS interval_end,
       a.manifest, a.finished_at, COALESCE(b.txid <= r.swapped_txid, false) AS before_rebuild,
       d.keys AS rebuilt_keys, d.kept AS rebuilt_kept, d.records AS rebuilt_records, d.streams AS rebuilt_streams,
       (SELECT json_agg(json_build_object('stream', p.stream, 'partition', p.partition, 'status', p.status, 'metadata',
               p.metadata, 'records', p.records, 'fingerprint', p.fingerprint::text))
          FROM txbatch.partition p WHERE (p.topology, p.txid) = (b.topology, b.txid)) AS partitions
  FROM txbatch.batch b
  LEFT JOIN txbatch.attempt a ON (a.topology, a.txid, a.attempt_id) = (b.topology, b.txid, b.committed_fence)
  LEFT JOIN LATERAL (
       SELECT rebuild, swapped_txid FROM txbatch.rebuild n
        WHERE n.topology = b.topology AND n.status = 'swapped' ORDER BY rebuild DESC LIMIT 1) r ON true
  LEFT JOIN txbatch.rebuilt d ON (d.rebuild, d.txid) = (r.rebuild, b.txid)
 WHERE b.topology = :topology AND b.status = 'committed' ORDER BY b.txid;

-- numbers_missing --
-- How many txids of a topology are missing between the first and the newest (R1).
SELECT max(txid) - count(*) AS missing FROM txbatch.batch WHERE topology = :topology;

-- consumed_otherwise --
-- Partitions of which the next batch would begin elsewhere than where the newest ended. What was given up is committed at once,
-- also before a batch with a lower txid: so newer is what has the higher txid and was committed later.
WITH read AS (
    SELECT p.stream, p.partition, p.txid, p.metadata::text AS metadata, b.committed_at
      FROM txbatch.partition p JOIN txbatch.batch b ON (b.topology, b.txid) = (p.topology, p.txid)
     WHERE p.topology = :topology AND p.status <> 'unreadable' AND b.kind <> 'restate')
SELECT c.stream, c.partition, c.txid FROM txbatch.consumed c
  LEFT JOIN read r ON (r.stream, r.partition, r.txid, r.metadata) = (c.stream, c.partition, c.txid, c.metadata::text)
 WHERE c.topology = :topology AND (r.txid IS NULL OR EXISTS (
       SELECT FROM read n
        WHERE (n.stream, n.partition) = (r.stream, r.partition) AND n.txid > r.txid AND n.committed_at > r.committed_at))
 ORDER BY c.stream, c.partition;

-- counted_otherwise --
-- Time that is counted by the one and not by the other: the stretches, and the intervals of committed batches.
WITH told AS (
    SELECT COALESCE(range_agg(tstzrange(starts, ends)), '{}') AS time FROM txbatch.counted WHERE topology = :topology
), batches AS (
    SELECT COALESCE(range_agg(data_interval), '{}') AS time FROM txbatch.batch
     WHERE topology = :topology AND data_interval IS NOT NULL AND status = 'committed' AND kind <> 'restate')
SELECT unnest((t.time - b.time) + (b.time - t.time))::text AS time FROM told t, batches b;

-- records_otherwise --
-- The newest committed batch, if the records of all batches that count are others than it tells.
SELECT n.txid, n.records_to, s.records
  FROM (SELECT txid, records_to FROM txbatch.batch
         WHERE topology = :topology AND status = 'committed' AND kind <> 'skip' ORDER BY txid DESC LIMIT 1) n
 CROSS JOIN (SELECT COALESCE(sum(records), 0)::bigint AS records FROM txbatch.batch
              WHERE topology = :topology AND status = 'committed' AND kind <> 'skip' AND replaced_by IS NULL) s
 WHERE n.records_to <> s.records;  -- null: status adds the records up

-- rebuilt_otherwise --
-- Rebuilds that did not count just the batches that counted when they took the old generation's place.
SELECT r.rebuild, r.swapped_txid FROM txbatch.rebuild r
 WHERE r.topology = :topology AND r.status = 'swapped' AND (
       EXISTS (SELECT FROM txbatch.rebuilt d WHERE d.rebuild = r.rebuild AND d.txid > r.swapped_txid)
    OR EXISTS (SELECT FROM txbatch.batch b
                WHERE b.topology = r.topology AND b.txid <= r.swapped_txid AND b.status = 'committed' AND b.kind <> 'skip'
                  AND COALESCE(b.replaced_by > r.swapped_txid, true)
                  AND NOT EXISTS (SELECT FROM txbatch.rebuilt d WHERE (d.rebuild, d.txid) = (r.rebuild, b.txid))))
 ORDER BY r.rebuild;
