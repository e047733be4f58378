-- What a topology keeps of its past stands in its job (R22).

ALTER TABLE txbatch.topology ADD COLUMN keep json;

-- What each topology keeps of its past, and what it has left (R22).
CREATE VIEW report.retention AS
SELECT t.topology, (t.keep ->> 'txids')::bigint AS keep_txids, (t.keep ->> 'days')::double precision AS keep_days, s.horizon,
       h.committed_at AS horizon_at,
       (SELECT count(*) FROM txbatch.batch b
         WHERE b.topology = t.topology AND b.status = 'committed' AND b.txid > s.horizon) AS batches_kept
  FROM txbatch.topology t
  LEFT JOIN (SELECT topology, min(horizon) AS horizon FROM txbatch.state WHERE contributions GROUP BY topology) s USING (topology)
  LEFT JOIN txbatch.batch h ON (h.topology, h.txid) = (t.topology, s.horizon);

COMMENT ON VIEW report.retention IS 'What a topology keeps of its past: what is folded can be asked for no more, and not be restated.';
COMMENT ON COLUMN report.retention.topology IS 'The pipeline';
COMMENT ON COLUMN report.retention.keep_txids IS 'Its policy: so many of the newest batches are kept';
COMMENT ON COLUMN report.retention.keep_days IS 'Its policy: what was committed in the last so many days is kept; both null: everything, for ever';
COMMENT ON COLUMN report.retention.horizon IS 'The newest batch that is folded; 0: none; null: it keeps no contributions';
COMMENT ON COLUMN report.retention.horizon_at IS 'When that one was committed';
COMMENT ON COLUMN report.retention.batches_kept IS 'How many committed batches can be asked for and restated';
