-- How far the event time of each stream is, and how many records of each batch were late (R25).

ALTER TABLE txbatch.topology ADD COLUMN watermarks json;
ALTER TABLE txbatch.batch ADD COLUMN watermark json, ADD COLUMN late json;
ALTER TABLE txbatch.consumed ADD COLUMN latest bigint;
ALTER TABLE txbatch.rebuilt ADD COLUMN late json;

-- The partitions that are behind (R25): a batch could not read them, or an aborted one was to, since they were read last.
CREATE TABLE txbatch.behind (
    topology  text COLLATE "C" NOT NULL REFERENCES txbatch.topology ON UPDATE CASCADE,
    stream    text COLLATE "C" NOT NULL,
    partition text COLLATE "C" NOT NULL,
    txid      bigint NOT NULL,                       -- the newest such batch
    PRIMARY KEY (topology, stream, partition)
);

INSERT INTO txbatch.behind
SELECT topology, stream, partition, m.txid
  FROM (SELECT topology, stream, partition, max(txid) AS txid
          FROM (SELECT u.topology, u.stream, u.partition, u.txid FROM txbatch.partition u JOIN txbatch.batch b USING (topology, txid)
                 WHERE u.status = 'unreadable' AND b.kind <> 'restate'
                 UNION ALL
                SELECT b.topology, s.key COLLATE "C", p.key COLLATE "C", b.txid
                  FROM txbatch.batch b
                 CROSS JOIN json_each(CASE WHEN json_typeof(b.metadata -> 'streams') = 'object' THEN b.metadata -> 'streams' END) s
                 CROSS JOIN json_each(CASE WHEN json_typeof(s.value -> 'partitions') = 'object' THEN s.value -> 'partitions' END) p
                 WHERE b.status = 'aborted' AND b.kind = 'ordinary') each
         GROUP BY topology, stream, partition) m
  LEFT JOIN txbatch.consumed c USING (topology, stream, partition)
 WHERE c.txid IS NULL OR c.txid < m.txid;

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
       b.late, w.watermark
  FROM txbatch.batch b
  LEFT JOIN txbatch.attempt a ON (a.topology, a.txid, a.attempt_id) = (b.topology, b.txid, b.fence)
  LEFT JOIN LATERAL (
       SELECT dag_id, run_id FROM txbatch.batch_key k
        WHERE k.topology = b.topology AND k.txid = b.txid
        ORDER BY key, ordinal LIMIT 1) k ON true
  LEFT JOIN LATERAL (
       SELECT timestamptz 'epoch' + min(value::bigint) * interval '1 microsecond' AS watermark
         FROM json_each_text(b.watermark)) w ON true;

COMMENT ON COLUMN report.batches.late IS 'Records of windows that had ended by the watermark of its plan, by state; null without a watermark';
COMMENT ON COLUMN report.batches.watermark IS 'Up to when records are taken to be there since its commit: the least of its streams; null without one';
