-- What people read: who committed a batch and what its filters kept, days that are held but not counted, and what each
-- column means.

ALTER TABLE txbatch.batch ADD COLUMN kept json;

-- Whoever asks for a batch's run finds it by the batch.
CREATE INDEX batch_key_txid ON txbatch.batch_key (topology, txid);

CREATE OR REPLACE VIEW report.batches AS
SELECT b.topology, b.txid, b.kind, b.status,
       b.status = 'committed' AND NOT EXISTS (
           SELECT FROM txbatch.batch o
            WHERE o.topology = b.topology AND o.txid < b.txid AND o.status IN ('planned', 'emitted')) AS final,
       lower(b.data_interval) AS interval_start, upper(b.data_interval) AS interval_end,
       b.fence AS attempts, b.records, b.keys, k.dag_id, k.run_id,
       b.created_at, b.committed_at, b.committed_at - b.created_at AS duration, b.reason,
       b.lease_run AS run, b.status IN ('planned', 'emitted') AND b.lease_until > clock_timestamp() AS lease_live,
       b.kept, a.finished_at - a.started_at AS emit_duration
  FROM txbatch.batch b
  LEFT JOIN txbatch.attempt a ON (a.topology, a.txid, a.attempt_id) = (b.topology, b.txid, b.fence)
  LEFT JOIN LATERAL (
       SELECT dag_id, run_id FROM txbatch.batch_key k
        WHERE k.topology = b.topology AND k.txid = b.txid
        ORDER BY key, ordinal LIMIT 1) k ON true;

-- Intervals between committed ones that are not counted: no batch has them, or one that is not committed (R2).
CREATE OR REPLACE VIEW report.gaps AS
WITH counted AS (
    SELECT topology, range_agg(data_interval) AS intervals FROM txbatch.batch
     WHERE data_interval IS NOT NULL AND status = 'committed' AND kind <> 'restate' GROUP BY topology
), held AS (
    SELECT b.topology, b.data_interval, b.txid, b.status, a.status AS attempt_status, b.lease_run AS run,
           b.lease_until > clock_timestamp() AS lease_live
      FROM txbatch.batch b JOIN counted c ON c.topology = b.topology AND range_merge(c.intervals) @> b.data_interval
      LEFT JOIN txbatch.attempt a ON (a.topology, a.txid, a.attempt_id) = (b.topology, b.txid, b.fence)
     WHERE b.status IN ('planned', 'emitted') AND b.kind <> 'restate'
), free AS (
    SELECT topology, multirange(range_merge(intervals)) - intervals
           - COALESCE((SELECT range_agg(h.data_interval) FROM held h WHERE h.topology = c.topology), '{}') AS intervals
      FROM counted c
)
SELECT topology, lower(i) AS gap_start, upper(i) AS gap_end, NULL::bigint AS txid, NULL::text AS status,
       NULL::text AS attempt_status, NULL::text AS run, NULL::boolean AS lease_live
  FROM free, unnest(intervals) i
 UNION ALL
SELECT topology, lower(data_interval), upper(data_interval), txid, status, attempt_status, run, lease_live FROM held;

CREATE OR REPLACE VIEW report.completeness AS
SELECT p.topology, p.stream, p.partition, c.metadata ->> 'end' AS consumed_to, c.txid AS current_to_txid,
       b.committed_at AS current_to, h.txid AS unreadable_since_txid
  FROM (SELECT topology, stream, partition FROM txbatch.consumed
         UNION
        SELECT topology, stream, partition FROM txbatch.partition WHERE status = 'unreadable') p
  LEFT JOIN txbatch.consumed c USING (topology, stream, partition)
  LEFT JOIN txbatch.batch b ON b.topology = c.topology AND b.txid = c.txid
  LEFT JOIN LATERAL (
       SELECT min(u.txid) AS txid FROM txbatch.partition u
        WHERE u.topology = p.topology AND u.stream = p.stream AND u.partition = p.partition
          AND u.status = 'unreadable' AND u.txid > COALESCE(c.txid, 0)) h ON true
 UNION ALL
SELECT i.topology, s.stream, '', to_char(i.whole_to AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), b.txid,
       b.committed_at, NULL
  FROM (SELECT topology, upper((SELECT r FROM unnest(range_agg(data_interval)) r ORDER BY r LIMIT 1)) AS whole_to
          FROM txbatch.batch
         WHERE data_interval IS NOT NULL AND status = 'committed' AND kind <> 'restate' GROUP BY topology) i
  JOIN txbatch.batch b ON b.topology = i.topology AND upper(b.data_interval) = i.whole_to
       AND b.status = 'committed' AND b.kind <> 'restate'
  JOIN txbatch.partition s ON (s.topology, s.txid, s.partition) = (b.topology, b.txid, '');

COMMENT ON VIEW report.batches IS 'A batch: one transaction of a topology, which counts as a whole or not at all.';
COMMENT ON COLUMN report.batches.topology IS 'The pipeline, named as its DAG';
COMMENT ON COLUMN report.batches.txid IS 'The number of the transaction: 1, 2, 3, ... per topology';
COMMENT ON COLUMN report.batches.kind IS 'ordinary, or skip: a batch whose records were given up';
COMMENT ON COLUMN report.batches.status IS 'planned: its records are fixed; emitted: Spark has read them; committed: they count; aborted: they are free for another batch';
COMMENT ON COLUMN report.batches.final IS 'Whether it is committed and no batch before it is open: nothing below it can still change';
COMMENT ON COLUMN report.batches.interval_start IS 'Begin of the time that the batch covers; null where batches are not by time';
COMMENT ON COLUMN report.batches.interval_end IS 'End of that time, which is not part of it';
COMMENT ON COLUMN report.batches.attempts IS 'How often Spark was started for it';
COMMENT ON COLUMN report.batches.records IS 'Source records read, a CSV header not among them';
COMMENT ON COLUMN report.batches.keys IS 'Keys changed, by state';
COMMENT ON COLUMN report.batches.dag_id IS 'The DAG of the run that planned it; null outside Airflow';
COMMENT ON COLUMN report.batches.run_id IS 'The run of that DAG; another one may have finished it, see run';
COMMENT ON COLUMN report.batches.created_at IS 'When it was planned';
COMMENT ON COLUMN report.batches.committed_at IS 'When its numbers could be seen first';
COMMENT ON COLUMN report.batches.duration IS 'From planning to commit, with all waits and retries';
COMMENT ON COLUMN report.batches.reason IS 'Why it was aborted, or its records were given up';
COMMENT ON COLUMN report.batches.run IS 'The run that looks after it, or did last, also outside Airflow';
COMMENT ON COLUMN report.batches.lease_live IS 'Whether that run has shown a sign of life lately; false for a batch that is over';
COMMENT ON COLUMN report.batches.kept IS 'Records that reached each state after filters and functions, by state; null for batches of older versions';
COMMENT ON COLUMN report.batches.emit_duration IS 'How long Spark took in the newest attempt';
COMMENT ON VIEW report.attempts IS 'An attempt: one try of Spark to read and aggregate a batch. Only the newest of a batch can be committed.';
COMMENT ON COLUMN report.attempts.topology IS 'The pipeline';
COMMENT ON COLUMN report.attempts.txid IS 'The batch';
COMMENT ON COLUMN report.attempts.attempt_id IS 'The try: 1, 2, 3, ...';
COMMENT ON COLUMN report.attempts.attempt IS 'Both, as logs write it: 7:2';
COMMENT ON COLUMN report.attempts.status IS 'emitting, emitted: ready to commit; committed: this one counts; failed; superseded: a newer one took its place';
COMMENT ON COLUMN report.attempts.run IS 'The run that made it';
COMMENT ON COLUMN report.attempts.error IS 'Why it failed';
COMMENT ON COLUMN report.attempts.started_at IS 'When it began';
COMMENT ON COLUMN report.attempts.finished_at IS 'When it ended, or was overtaken';
COMMENT ON COLUMN report.attempts.duration IS 'How long it took';
COMMENT ON COLUMN report.attempts.code IS 'Begin of the sha256 of the job file that ran';
COMMENT ON VIEW report.partitions IS 'What a batch read of a partition of its source, such as a file, or that it could not.';
COMMENT ON COLUMN report.partitions.topology IS 'The pipeline';
COMMENT ON COLUMN report.partitions.stream IS 'The stream of the topology';
COMMENT ON COLUMN report.partitions.partition IS 'The partition or file; empty for a source without';
COMMENT ON COLUMN report.partitions.txid IS 'The batch';
COMMENT ON COLUMN report.partitions.status IS 'read, unreadable: left out, a later batch reads it; skipped: given up';
COMMENT ON COLUMN report.partitions.start_offset IS 'Where the batch began to read';
COMMENT ON COLUMN report.partitions.end_offset IS 'Where it ended';
COMMENT ON COLUMN report.partitions.records IS 'Records read, as the reader counted them';
COMMENT ON COLUMN report.partitions.fingerprint IS 'Sum of the hashes of these records: the same records have the same';
COMMENT ON COLUMN report.partitions.reason IS 'Why it was not read';
COMMENT ON VIEW report.completeness IS 'How far each partition is counted, or each stream that is read by time.';
COMMENT ON COLUMN report.completeness.topology IS 'The pipeline';
COMMENT ON COLUMN report.completeness.stream IS 'The stream of the topology';
COMMENT ON COLUMN report.completeness.partition IS 'The partition or file; empty for a stream that is read by time';
COMMENT ON COLUMN report.completeness.consumed_to IS 'All before this offset is counted; by time: all from the first interval on up to this moment, without a gap';
COMMENT ON COLUMN report.completeness.current_to_txid IS 'The batch that came that far';
COMMENT ON COLUMN report.completeness.current_to IS 'When that one was committed';
COMMENT ON COLUMN report.completeness.unreadable_since_txid IS 'The first batch that had to leave it out, if it still lacks records';
COMMENT ON VIEW report.gaps IS 'An interval between counted ones that is not counted: no batch has it, or one that is not committed.';
COMMENT ON COLUMN report.gaps.topology IS 'The pipeline';
COMMENT ON COLUMN report.gaps.gap_start IS 'Begin of the interval';
COMMENT ON COLUMN report.gaps.gap_end IS 'End of the interval, which is not part of it';
COMMENT ON COLUMN report.gaps.txid IS 'The batch that holds it and is not committed; null: none has it';
COMMENT ON COLUMN report.gaps.status IS 'planned or emitted: how far that batch is';
COMMENT ON COLUMN report.gaps.attempt_status IS 'What became of its newest attempt';
COMMENT ON COLUMN report.gaps.run IS 'The run that looks after it';
COMMENT ON COLUMN report.gaps.lease_live IS 'Whether that run has shown a sign of life lately';
COMMENT ON VIEW report.waiting IS 'Who waits for whom: batches for their turn, and runs for a batch.';
COMMENT ON COLUMN report.waiting.topology IS 'The pipeline';
COMMENT ON COLUMN report.waiting.txid IS 'The batch that waits; null: a run that has none yet';
COMMENT ON COLUMN report.waiting.run IS 'The run that waits';
COMMENT ON COLUMN report.waiting.status IS 'emitted: the batch waits to be committed; waiting: the run waits for room';
COMMENT ON COLUMN report.waiting.waits_for_txid IS 'The batch that is waited for';
COMMENT ON COLUMN report.waiting.waits_for_run IS 'The run that looks after that one';
COMMENT ON COLUMN report.waiting.waits_for_status IS 'planned or emitted';
COMMENT ON COLUMN report.waiting.lease_live IS 'Whether that run has shown a sign of life lately; else whoever waits takes over';
COMMENT ON COLUMN report.waiting.since IS 'Since when';
COMMENT ON COLUMN report.waiting.waited IS 'How long';
