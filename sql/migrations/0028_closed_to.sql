-- Up to when the windows of each state are closed since a batch, and which it closed (R26).

ALTER TABLE txbatch.batch ADD COLUMN closed_to json, ADD COLUMN closed json;

CREATE OR REPLACE VIEW report.batches AS
SELECT b.topology, b.txid, b.kind, b.status,
       b.status = 'committed' AND NOT EXISTS (
           SELECT FROM txbatch.batch o
            WHERE o.topology = b.topology AND o.txid < b.txid AND o.status IN ('planned', 'emitted')) AS final,
       lower(b.data_interval) AS interval_start, upper(b.data_interval) AS interval_end,
       b.fence AS attempts, b.records, b.keys, k.dag_id, k.run_id,
       b.created_at, b.committed_at, b.committed_at - b.created_at AS duration, b.reason,
       b.lease_run AS run, b.status IN ('planned', 'emitted') AND b.lease_until > clock_timestamp() AS lease_live,
       b.kept, a.finished_at - a.started_at AS emit_duration, b.position, b.replaced_by, b.requested_by,
       b.late, w.watermark, s.closed_to
  FROM txbatch.batch b
  LEFT JOIN txbatch.attempt a ON (a.topology, a.txid, a.attempt_id) = (b.topology, b.txid, b.fence)
  LEFT JOIN LATERAL (
       SELECT dag_id, run_id FROM txbatch.batch_key k
        WHERE k.topology = b.topology AND k.txid = b.txid
        ORDER BY key, ordinal LIMIT 1) k ON true
  LEFT JOIN LATERAL (
       SELECT timestamptz 'epoch' + min(value::bigint) * interval '1 microsecond' AS watermark
         FROM json_each_text(b.watermark)) w ON true
  LEFT JOIN LATERAL (
       SELECT timestamptz 'epoch' + min(value::bigint) * interval '1 microsecond' AS closed_to
         FROM json_each_text(b.closed_to)) s ON true;

-- The windows that a batch closed: those of a state that begin from one time to before another one (R26).
CREATE VIEW report.closings AS
SELECT b.topology, b.txid, c.key AS state, c.value ->> 0 AS window_key,
       timestamptz 'epoch' + (c.value ->> 1)::bigint * interval '1 microsecond' AS first_start,
       timestamptz 'epoch' + (c.value ->> 2)::bigint * interval '1 microsecond' AS before_start,
       timestamptz 'epoch' + (b.closed_to ->> c.key)::bigint * interval '1 microsecond' AS closed_to, b.committed_at
  FROM txbatch.batch b CROSS JOIN LATERAL json_each(b.closed) c
 WHERE b.status = 'committed';

COMMENT ON COLUMN report.batches.closed_to IS 'Up to when windows are closed since its commit: the least of its states; null where none are';
COMMENT ON VIEW report.closings IS 'Windows of a state that a batch closed: no ordinary batch after it counts records in time in them.';
COMMENT ON COLUMN report.closings.topology IS 'The pipeline';
COMMENT ON COLUMN report.closings.txid IS 'The batch that closed them';
COMMENT ON COLUMN report.closings.state IS 'The state';
COMMENT ON COLUMN report.closings.window_key IS 'The key of the state that has the starts of its windows';
COMMENT ON COLUMN report.closings.first_start IS 'They start then or later';
COMMENT ON COLUMN report.closings.before_start IS 'They start before then';
COMMENT ON COLUMN report.closings.closed_to IS 'Up to when windows of the state are closed since the commit: they end then or earlier';
COMMENT ON COLUMN report.closings.committed_at IS 'When the batch was committed';
