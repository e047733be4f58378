-- A partition that was read before and is listed no more is told: its plan has it under "missing".
-- The partitions that the newest plan of a topology says are listed no more, and since when: since the first such plan after
-- the partition was read last.
CREATE VIEW txbatch.missing AS
WITH newest AS (
    SELECT topology, max(txid) AS txid FROM txbatch.batch WHERE status <> 'aborted' AND kind = 'ordinary' GROUP BY topology),
now AS (
    SELECT n.topology, s.key AS stream, x.partition
      FROM newest n JOIN txbatch.batch b USING (topology, txid)
     CROSS JOIN json_each(b.metadata -> 'streams') s
     CROSS JOIN json_array_elements_text(
           CASE WHEN json_typeof(s.value -> 'missing') = 'array' THEN s.value -> 'missing' ELSE '[]' END) x(partition)),
told AS (
    SELECT b.topology, b.txid, b.created_at, s.key AS stream, x.partition
      FROM txbatch.batch b
     CROSS JOIN json_each(b.metadata -> 'streams') s
     CROSS JOIN json_array_elements_text(
           CASE WHEN json_typeof(s.value -> 'missing') = 'array' THEN s.value -> 'missing' ELSE '[]' END) x(partition)
     WHERE b.status <> 'aborted' AND b.kind = 'ordinary' AND b.topology IN (SELECT topology FROM now))
SELECT topology, stream, partition, min(t.created_at) AS since
  FROM now JOIN told t USING (topology, stream, partition)
  LEFT JOIN txbatch.consumed c USING (topology, stream, partition)
 WHERE t.txid > COALESCE(c.txid, 0)
 GROUP BY topology, stream, partition;

CREATE OR REPLACE VIEW report.completeness AS
SELECT p.topology, p.stream, p.partition, c.metadata ->> 'end' AS consumed_to, c.txid AS current_to_txid,
       b.committed_at AS current_to, h.txid AS unreadable_since_txid, m.since AS missing_since
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
  LEFT JOIN txbatch.missing m ON (m.topology, m.stream, m.partition) = (p.topology, p.stream, p.partition)
 UNION ALL
SELECT i.topology, s.stream, '', to_char(i.whole_to AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), b.txid,
       b.committed_at, NULL, NULL
  FROM (SELECT topology, upper((SELECT r FROM unnest(range_agg(data_interval)) r ORDER BY r LIMIT 1)) AS whole_to
          FROM txbatch.batch
         WHERE data_interval IS NOT NULL AND status = 'committed' AND kind <> 'restate' GROUP BY topology) i
  JOIN txbatch.batch b ON b.topology = i.topology AND upper(b.data_interval) = i.whole_to
       AND b.status = 'committed' AND b.kind <> 'restate'
  JOIN txbatch.partition s ON (s.topology, s.txid, s.partition) = (b.topology, b.txid, '');

COMMENT ON COLUMN report.completeness.missing_since IS 'When it was first planned that the source lists it no more; null: it is listed, or nobody asks';
