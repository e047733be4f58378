-- What counts another batch again says so (R17); what it had to leave out is no hole that is still to be filled.

CREATE OR REPLACE VIEW report.batches AS
SELECT b.topology, b.txid, b.kind, b.status,
       b.status = 'committed' AND NOT EXISTS (
           SELECT FROM txbatch.batch o
            WHERE o.topology = b.topology AND o.txid < b.txid AND o.status IN ('planned', 'emitted')) AS final,
       lower(b.data_interval) AS interval_start, upper(b.data_interval) AS interval_end,
       b.fence AS attempts, b.records, b.keys, k.dag_id, k.run_id,
       b.created_at, b.committed_at, b.committed_at - b.created_at AS duration, b.reason,
       b.lease_run AS run, b.status IN ('planned', 'emitted') AND b.lease_until > clock_timestamp() AS lease_live,
       b.kept, a.finished_at - a.started_at AS emit_duration, b.position, b.replaced_by, b.requested_by
  FROM txbatch.batch b
  LEFT JOIN txbatch.attempt a ON (a.topology, a.txid, a.attempt_id) = (b.topology, b.txid, b.fence)
  LEFT JOIN LATERAL (
       SELECT dag_id, run_id FROM txbatch.batch_key k
        WHERE k.topology = b.topology AND k.txid = b.txid
        ORDER BY key, ordinal LIMIT 1) k ON true;

CREATE OR REPLACE VIEW report.completeness AS
SELECT p.topology, p.stream, p.partition, c.metadata ->> 'end' AS consumed_to, c.txid AS current_to_txid,
       b.committed_at AS current_to, h.txid AS unreadable_since_txid
  FROM (SELECT topology, stream, partition FROM txbatch.consumed
         UNION
        SELECT topology, stream, partition FROM txbatch.partition u
         WHERE status = 'unreadable' AND NOT EXISTS (
               SELECT FROM txbatch.batch r WHERE r.topology = u.topology AND r.txid = u.txid AND r.kind = 'restate')) p
  LEFT JOIN txbatch.consumed c USING (topology, stream, partition)
  LEFT JOIN txbatch.batch b ON b.topology = c.topology AND b.txid = c.txid
  LEFT JOIN LATERAL (
       SELECT min(u.txid) AS txid FROM txbatch.partition u
        WHERE u.topology = p.topology AND u.stream = p.stream AND u.partition = p.partition
          AND u.status = 'unreadable' AND u.txid > COALESCE(c.txid, 0) AND NOT EXISTS (
              SELECT FROM txbatch.batch r WHERE r.topology = u.topology AND r.txid = u.txid AND r.kind = 'restate')) h ON true
 UNION ALL
SELECT i.topology, s.stream, '', to_char(i.whole_to AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), b.txid,
       b.committed_at, NULL
  FROM (SELECT topology, upper((SELECT r FROM unnest(range_agg(data_interval)) r ORDER BY r LIMIT 1)) AS whole_to
          FROM txbatch.batch
         WHERE data_interval IS NOT NULL AND status = 'committed' AND kind <> 'restate' GROUP BY topology) i
  JOIN txbatch.batch b ON b.topology = i.topology AND upper(b.data_interval) = i.whole_to
       AND b.status = 'committed' AND b.kind <> 'restate'
  JOIN txbatch.partition s ON (s.topology, s.txid, s.partition) = (b.topology, b.txid, '');

COMMENT ON COLUMN report.batches.kind IS 'ordinary; restate: it counts another batch again, see position; or skip: a batch whose records were given up';
COMMENT ON COLUMN report.batches.reason IS 'Why it was aborted, its records were given up, or it counts another batch again';
COMMENT ON COLUMN report.batches.position IS 'The batch that it stands for: itself, unless it is a restate';
COMMENT ON COLUMN report.batches.replaced_by IS 'The restate that counts in its place; null: none does';
COMMENT ON COLUMN report.batches.requested_by IS 'Who asked for it, of a restate';
