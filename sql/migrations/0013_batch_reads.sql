-- The files of a batch by time stand within its spout's part of the plan; in plans of format 1 the plan is that part.
CREATE OR REPLACE VIEW report.batch_reads AS
SELECT topology, txid, stream, partition AS source, metadata ->> 'start' AS start_offset, metadata ->> 'end' AS end_offset
  FROM txbatch.partition WHERE status = 'read' AND partition <> ''
 UNION ALL
SELECT b.topology, b.txid, s.key, f.key, NULL, NULL
  FROM txbatch.batch b
 CROSS JOIN json_each(CASE WHEN json_typeof(b.metadata -> 'streams') = 'object' THEN b.metadata -> 'streams' END) s
 CROSS JOIN LATERAL (SELECT COALESCE(s.value -> 'plan' -> 'files', s.value -> 'files') AS files) p
 CROSS JOIN json_each(CASE WHEN json_typeof(p.files) = 'object' THEN p.files END) f
 WHERE b.status = 'committed' AND b.kind <> 'skip' AND b.data_interval IS NOT NULL;
