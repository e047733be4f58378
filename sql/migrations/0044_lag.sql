-- Sources that number their records tell how far behind a batch was, and what they still kept.
CREATE OR REPLACE VIEW report.completeness AS
SELECT p.topology, p.stream, p.partition, c.metadata ->> 'end' AS consumed_to, c.txid AS current_to_txid,
       b.committed_at AS current_to, h.txid AS unreadable_since_txid, m.since AS missing_since,
       CASE WHEN c.metadata ->> 'kept' IS NOT NULL
             AND concat(c.metadata ->> 'kept', c.metadata ->> 'seen', c.metadata ->> 'end') ~ '^[0-9]+$'
            THEN COALESCE(c.metadata ->> 'seen', c.metadata ->> 'end')::numeric - (c.metadata ->> 'end')::numeric
       END AS lag,
       c.metadata ->> 'kept' AS kept_from
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
       b.committed_at, NULL, NULL, NULL, NULL
  FROM (SELECT topology, upper((SELECT r FROM unnest(range_agg(data_interval)) r ORDER BY r LIMIT 1)) AS whole_to
          FROM txbatch.batch
         WHERE data_interval IS NOT NULL AND status = 'committed' AND kind <> 'restate' GROUP BY topology) i
  JOIN txbatch.batch b ON b.topology = i.topology AND upper(b.data_interval) = i.whole_to
       AND b.status = 'committed' AND b.kind <> 'restate'
  JOIN txbatch.partition s ON (s.topology, s.txid, s.partition) = (b.topology, b.txid, '');

COMMENT ON COLUMN report.completeness.lag IS 'How many offsets the source had after consumed_to when the batch current_to_txid was planned; null: the source does not tell';
COMMENT ON COLUMN report.completeness.kept_from IS 'The oldest offset that the source kept when the batch current_to_txid was planned; null: the source does not tell';
