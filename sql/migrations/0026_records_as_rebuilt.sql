-- A batch that a rebuild counted again has so many records as that read; a restate is told as it was then.
UPDATE txbatch.batch b SET records = d.records
  FROM txbatch.rebuild r JOIN txbatch.rebuilt d USING (rebuild)
 WHERE r.topology = b.topology AND r.status = 'swapped' AND d.txid = b.txid
   AND NOT EXISTS (SELECT FROM txbatch.rebuild n WHERE n.topology = r.topology AND n.status = 'swapped' AND n.rebuild > r.rebuild);

CREATE OR REPLACE VIEW report.restatements AS
SELECT r.topology, r.position, r.txid, o.txid AS replaced_txid, r.status, r.reason, r.requested_by, k.dag_id, k.run_id,
       r.lease_run AS run, r.created_at, r.committed_at,
       CASE WHEN o.records IS NOT NULL THEN (
           SELECT COALESCE(sum(p.records), 0)::bigint FROM txbatch.partition p
            WHERE (p.topology, p.txid) = (o.topology, o.txid)) END AS records_before,
       CASE WHEN r.records IS NOT NULL THEN (
           SELECT COALESCE(sum(p.records), 0)::bigint FROM txbatch.partition p
            WHERE (p.topology, p.txid) = (r.topology, r.txid)) END AS records,
       r.keys, r.replaced_by
  FROM txbatch.batch r
  LEFT JOIN txbatch.batch o ON o.topology = r.topology AND o.replaced_by = r.txid
  LEFT JOIN LATERAL (
       SELECT dag_id, run_id FROM txbatch.batch_key k
        WHERE k.topology = r.topology AND k.txid = r.txid
        ORDER BY key, ordinal LIMIT 1) k ON true
 WHERE r.kind = 'restate';

COMMENT ON COLUMN report.batches.records IS 'Source records read, a CSV header not among them; once a rebuild has counted the batch again, those that it read';
COMMENT ON COLUMN report.restatements.records_before IS 'Source records that the replaced one had read when it was counted';
COMMENT ON COLUMN report.restatements.records IS 'Source records that it has read when it was counted; what a rebuild has read since is in report.batches';
