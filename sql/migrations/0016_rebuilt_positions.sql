-- A rebuild has counted so many positions, whatever was restated meanwhile: not so many versions of them.

CREATE OR REPLACE VIEW report.rebuilds AS
SELECT r.topology, r.rebuild, r.status, r.why, r.requested_by, r.job, r.started_at, r.ended_at, r.swapped_txid,
       d.counted, d.records,
       CASE WHEN r.status = 'running' THEN
            (SELECT count(*) FROM txbatch.batch b
              WHERE b.topology = r.topology AND b.status = 'committed' AND b.kind <> 'skip' AND b.replaced_by IS NULL
                AND b.txid > d.last_txid) END AS to_count,
       r.status = 'swapped' AND r.dropped_at IS NULL AS past_kept
  FROM txbatch.rebuild r CROSS JOIN LATERAL (
       -- A version that another one took the place of, whether that is counted or not, counts no more.
       SELECT count(*) FILTER (WHERE n.stands) AS counted,
              COALESCE(sum(n.records) FILTER (WHERE n.stands), 0)::bigint AS records, COALESCE(max(n.txid), 0) AS last_txid
         FROM (SELECT DISTINCT ON (v.position) v.txid, v.records, r.status = 'swapped' OR NOT EXISTS (
                      SELECT FROM txbatch.batch b
                       WHERE b.topology = r.topology AND b.txid = v.txid AND b.replaced_by IS NOT NULL) AS stands
                 FROM txbatch.rebuilt v WHERE v.rebuild = r.rebuild ORDER BY v.position, v.txid DESC) n) d;

COMMENT ON COLUMN report.rebuilds.counted IS 'How many batches it has counted, each once, however often it was restated';
COMMENT ON COLUMN report.rebuilds.records IS 'Source records that it has counted';
COMMENT ON COLUMN report.rebuilds.to_count IS 'How many batches it still has to count, or to count again as they were restated; null once it is over';
