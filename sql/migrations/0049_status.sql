-- What `txbatch status` and the pages ask is found by index, however many batches there are; and what nobody told yet is told.

-- What each committed ordinary batch counted: `states` is the same for batches whose keys name the same states, whatever the numbers.
CREATE VIEW txbatch.counting AS
SELECT topology, txid, keys,
       CAST(md5(regexp_replace(COALESCE(CAST(keys AS text), ''), '("(?:[^"\\]|\\.)*")\s*:\s*[0-9]+', '\1', 'g')) AS uuid) AS states
  FROM txbatch.batch WHERE status = 'committed' AND kind = 'ordinary';

CREATE INDEX batch_counting ON txbatch.batch (topology, CAST(md5(regexp_replace(
    COALESCE(CAST(keys AS text), ''), '("(?:[^"\\]|\\.)*")\s*:\s*[0-9]+', '\1', 'g')) AS uuid), txid)
    WHERE status = 'committed' AND kind = 'ordinary';

-- Few batches have met late records: without this, the planner takes all for such batches, and looks at each.
CREATE STATISTICS txbatch.batch_met_late ON CAST(came_late AS text) FROM txbatch.batch;

ANALYZE txbatch.batch;

-- By jumps from each series of txids to the next: a state is in all batches of the same states, or in none.
CREATE OR REPLACE VIEW report.state_coverage AS
SELECT s.topology, s.state, c.since_txid, c.counts_to_txid, COALESCE(c.missed, 0) AS missed, c.missed_txids
  FROM txbatch.state s
 CROSS JOIN LATERAL (
       WITH RECURSIVE sets (states) AS (
           (SELECT b.states FROM txbatch.counting b WHERE b.topology = s.topology ORDER BY b.states LIMIT 1)
            UNION ALL
           SELECT n.states FROM sets CROSS JOIN LATERAL (
                  SELECT b.states FROM txbatch.counting b
                   WHERE b.topology = s.topology AND b.states > sets.states ORDER BY b.states LIMIT 1) n),
       told (states, counted) AS MATERIALIZED (
           SELECT sets.states, f.counted FROM sets CROSS JOIN LATERAL (
                  SELECT b.keys -> s.state IS NOT NULL AS counted FROM txbatch.counting b
                   WHERE b.topology = s.topology AND b.states = sets.states ORDER BY b.txid LIMIT 1) f),
       series (txid, counted) AS (
           (SELECT f.txid, told.counted FROM told CROSS JOIN LATERAL (
                   SELECT b.txid FROM txbatch.counting b
                    WHERE b.topology = s.topology AND b.states = told.states ORDER BY b.txid LIMIT 1) f
             ORDER BY f.txid LIMIT 1)
            UNION ALL
           SELECT n.txid, n.counted FROM series CROSS JOIN LATERAL (
                  SELECT f.txid, told.counted FROM told CROSS JOIN LATERAL (
                         SELECT b.txid FROM txbatch.counting b
                          WHERE b.topology = s.topology AND b.states = told.states AND b.txid > series.txid
                          ORDER BY b.txid LIMIT 1) f
                   WHERE told.counted <> series.counted ORDER BY f.txid LIMIT 1) n),
       ended (counted, first_txid, last_txid) AS (
           SELECT r.counted, r.txid, l.txid
             FROM (SELECT txid, counted, lead(txid) OVER (ORDER BY txid) AS next_txid FROM series) r
            CROSS JOIN LATERAL (
                  SELECT max(f.txid) AS txid FROM told CROSS JOIN LATERAL (
                         SELECT b.txid FROM txbatch.counting b
                          WHERE b.topology = s.topology AND b.states = told.states
                            AND b.txid < COALESCE(r.next_txid, 9223372036854775807)
                          ORDER BY b.txid DESC LIMIT 1) f
                   WHERE told.counted = r.counted) l)
       -- Txids have no gaps: what is not aborted, open, a skip or a restate is a committed ordinary batch.
       SELECT min(first_txid) FILTER (WHERE counted) AS since_txid, max(last_txid) FILTER (WHERE counted) AS counts_to_txid,
              (sum(CASE WHEN NOT counted THEN last_txid - first_txid + 1
                  - (SELECT count(*) FROM txbatch.batch b
                      WHERE b.topology = s.topology AND b.txid BETWEEN first_txid AND last_txid AND b.status = 'aborted')
                  - (SELECT count(*) FROM txbatch.batch b
                      WHERE b.topology = s.topology AND b.txid BETWEEN first_txid AND last_txid
                        AND b.status IN ('planned', 'emitted'))
                  - (SELECT count(*) FROM txbatch.batch b
                      WHERE b.topology = s.topology AND b.txid BETWEEN first_txid AND last_txid
                        AND b.kind = 'skip' AND b.status = 'committed')
                  - (SELECT count(*) FROM txbatch.batch b
                      WHERE b.topology = s.topology AND b.txid BETWEEN first_txid AND last_txid
                        AND b.kind = 'restate' AND b.status = 'committed') END))::bigint AS missed,
              string_agg(CASE WHEN first_txid = last_txid THEN first_txid::text ELSE first_txid || '-' || last_txid END, ', '
                         ORDER BY first_txid) FILTER (WHERE NOT counted) AS missed_txids
         FROM ended) c;

-- The run that planned a batch is looked up where it is asked for, and only there.
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
       b.ahead, timestamptz 'epoch' + b.ahead_to * interval '1 microsecond' AS ahead_to
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

-- A run that looks after an open batch waits as that batch, and in no second row.
CREATE OR REPLACE VIEW report.waiting AS
SELECT w.topology, w.txid, w.run, w.status, h.txid AS waits_for_txid, h.lease_run AS waits_for_run,
       h.status AS waits_for_status, h.lease_until > statement_timestamp() AS lease_live,
       w.since, statement_timestamp() - w.since AS waited, h.lease_until
  FROM (SELECT b.topology, b.txid, b.lease_run AS run, b.status, a.finished_at AS since,
               (SELECT min(o.txid) FROM txbatch.batch o
                 WHERE o.topology = b.topology AND o.txid < b.txid AND o.status IN ('planned', 'emitted')) AS waits_for
          FROM txbatch.batch b
          JOIN txbatch.attempt a ON (a.topology, a.txid, a.attempt_id) = (b.topology, b.txid, b.fence)
         WHERE b.status = 'emitted'
         UNION ALL
        SELECT topology, NULL, run, 'waiting', since, txid FROM txbatch.waiting r
         WHERE NOT EXISTS (
               SELECT FROM txbatch.batch o
                WHERE o.topology = r.topology AND o.lease_run = r.run AND o.status IN ('planned', 'emitted'))) w
  JOIN txbatch.batch h ON (h.topology, h.txid) = (w.topology, w.waits_for) AND h.status IN ('planned', 'emitted');

-- What a batch left out and no batch has read since: with nothing that waits or fails, all is not well.
CREATE OR REPLACE VIEW report.topologies AS
SELECT t.topology, t.job, t.by_interval, t.zone, t.streams,
       (SELECT b.txid FROM txbatch.batch b WHERE b.topology = t.topology ORDER BY b.txid DESC LIMIT 1) AS newest_txid,
       (SELECT b.txid FROM txbatch.batch b
         WHERE b.topology = t.topology AND b.status = 'committed' ORDER BY b.txid DESC LIMIT 1) AS current_to_txid,
       (SELECT b.committed_at FROM txbatch.batch b
         WHERE b.topology = t.topology AND b.status = 'committed' ORDER BY b.txid DESC LIMIT 1) AS committed_at,
       (SELECT upper((SELECT r FROM unnest(range_agg(tstzrange(c.starts, c.ends))) r ORDER BY r LIMIT 1))
          FROM txbatch.counted c WHERE c.topology = t.topology) AS whole_to,
       (SELECT count(*) FROM txbatch.batch b
         WHERE b.topology = t.topology AND b.status IN ('planned', 'emitted')) AS in_flight,
       (SELECT count(*) FROM txbatch.batch b
          JOIN txbatch.attempt a ON (a.topology, a.txid, a.attempt_id) = (b.topology, b.txid, b.fence)
         WHERE b.topology = t.topology AND b.status IN ('planned', 'emitted') AND a.status = 'failed') AS failing,
       (SELECT count(*) FROM report.waiting w WHERE w.topology = t.topology) AS waiting,
       (SELECT count(*) FROM report.gaps g WHERE g.topology = t.topology) AS gaps,
       (SELECT count(*) FROM txbatch.behind l LEFT JOIN txbatch.consumed c USING (topology, stream, partition)
         WHERE l.topology = t.topology AND EXISTS (
               SELECT FROM txbatch.partition u
                WHERE (u.topology, u.stream, u.partition) = (l.topology, l.stream, l.partition)
                  AND u.status = 'unreadable' AND u.txid > COALESCE(c.txid, 0) AND NOT EXISTS (
                      SELECT FROM txbatch.batch r WHERE (r.topology, r.txid, r.kind) = (u.topology, u.txid, 'restate')))) AS left_out
  FROM txbatch.topology t;

COMMENT ON COLUMN report.topologies.left_out IS 'How many partitions a batch could not read and left out, and no batch has read since';
