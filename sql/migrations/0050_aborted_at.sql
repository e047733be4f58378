-- When a batch was given up stands beside the reason.

CREATE OR REPLACE VIEW report.batches AS
SELECT b.topology, b.txid, b.kind, b.status,
       b.status = 'committed' AND NOT EXISTS (
           SELECT FROM txbatch.batch o
            WHERE o.topology = b.topology AND o.txid < b.txid AND o.status IN ('planned', 'emitted')) AS final,
       lower(b.data_interval) AS interval_start, upper(b.data_interval) AS interval_end,
       b.fence AS attempts, b.records, b.keys, k.dag_id, k.run_id,
       b.created_at, b.committed_at, b.committed_at - b.created_at AS duration, b.reason,
       b.lease_run AS run, b.status IN ('planned', 'emitted') AND b.lease_until > statement_timestamp() AS lease_live,
       b.kept, a.finished_at - a.started_at AS emit_duration, b.position, b.replaced_by, b.requested_by,
       b.late, w.watermark, s.closed_to,
       b.ahead, timestamptz 'epoch' + b.ahead_to * interval '1 microsecond' AS ahead_to,
       b.aborted_at
  FROM txbatch.batch b
  LEFT JOIN txbatch.attempt a ON (a.topology, a.txid, a.attempt_id) = (b.topology, b.txid, b.fence)
  LEFT JOIN LATERAL (
       SELECT (array_agg(dag_id ORDER BY key, ordinal))[1] AS dag_id, (array_agg(run_id ORDER BY key, ordinal))[1] AS run_id
         FROM txbatch.batch_key k WHERE k.topology = b.topology AND k.txid = b.txid) k ON true
  LEFT JOIN LATERAL (
       SELECT timestamptz 'epoch' + min(value::bigint) * interval '1 microsecond' AS watermark
         FROM json_each_text(b.watermark)) w ON true
  LEFT JOIN LATERAL (
       SELECT timestamptz 'epoch' + min(value::bigint) * interval '1 microsecond' AS closed_to
         FROM json_each_text(b.closed_to)) s ON true;

COMMENT ON COLUMN report.batches.aborted_at IS 'When the batch was aborted; null for any other batch';
