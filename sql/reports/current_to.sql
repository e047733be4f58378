-- What is current to when: of each topology the newest committed batch, how old it is, up to where its time is counted without
-- a gap, what is in flight, and the last restate, since when earlier numbers are others.
-- To change: nothing; it shows all topologies.
--     bin/txbatch psql -f sql/reports/current_to.sql
SELECT b.topology, max(b.txid) FILTER (WHERE b.status = 'committed') AS txid,
       date_trunc('second', max(b.committed_at)) AS committed_at,
       date_trunc('second', now() - max(b.committed_at)) AS age,
       (SELECT min(c.consumed_to) FROM report.completeness c WHERE c.topology = b.topology AND c.partition = '') AS counted_to,
       count(*) FILTER (WHERE b.status IN ('planned', 'emitted')) AS in_flight,
       (SELECT max(r.txid) FROM report.restatements r WHERE r.topology = b.topology AND r.status = 'committed') AS restated_by,
       (SELECT date_trunc('second', max(r.committed_at)) FROM report.restatements r WHERE r.topology = b.topology) AS restated_at
  FROM report.batches b
 GROUP BY b.topology
 ORDER BY b.topology;
