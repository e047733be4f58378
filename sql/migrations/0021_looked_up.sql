-- What a batch looked up, and as of when, among what it read (R3).
CREATE OR REPLACE VIEW report.batch_reads AS
SELECT topology, txid, stream, partition AS source, metadata ->> 'start' AS start_offset, metadata ->> 'end' AS end_offset
  FROM txbatch.partition WHERE status = 'read' AND partition <> ''
 UNION ALL
SELECT b.topology, b.txid, s.key, f.key, NULL, NULL
  FROM txbatch.batch b
 CROSS JOIN json_each(CASE WHEN json_typeof(b.metadata -> 'streams') = 'object' THEN b.metadata -> 'streams' END) s
 CROSS JOIN LATERAL (SELECT COALESCE(s.value -> 'plan' -> 'files', s.value -> 'files') AS files) p
 CROSS JOIN json_each(CASE WHEN json_typeof(p.files) = 'object' THEN p.files END) f
 WHERE b.status = 'committed' AND b.kind <> 'skip' AND b.data_interval IS NOT NULL
 UNION ALL
SELECT b.topology, b.txid, NULL, format('%s as of txid %s', a.key, a.value ->> 'txid'), NULL, NULL
  FROM txbatch.batch b
 CROSS JOIN json_each(CASE WHEN json_typeof(b.metadata -> 'as_of') = 'object' THEN b.metadata -> 'as_of' END) a
 WHERE b.status = 'committed' AND b.kind <> 'skip';

COMMENT ON VIEW report.batch_reads IS 'What a batch read: one row per partition or file, and per live state that it looked up in.';
COMMENT ON COLUMN report.batch_reads.stream IS 'The stream of the topology; null for a state that it looked up in';
COMMENT ON COLUMN report.batch_reads.source IS 'The partition or file; or the state, and as of which txid';
