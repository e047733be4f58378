-- What the pages in Airflow ask, as a reader of the schema report: nothing else is named here.

-- page_names --
-- The names of all topologies.
SELECT topology FROM report.topologies ORDER BY topology;

-- page_topologies --
-- Some topologies at a glance. A ledger without migration 49 has no `left_out`: the name means the null around it there.
SELECT t.* FROM (SELECT CAST(NULL AS bigint) AS left_out) older CROSS JOIN LATERAL (
       SELECT topology, job, by_interval, zone, streams, newest_txid, current_to_txid, committed_at, whole_to, in_flight, failing,
              waiting, gaps, left_out
         FROM report.topologies WHERE topology = ANY (CAST(:names AS text[]))) t ORDER BY topology;

-- page_topology --
-- One topology at a glance. A ledger without migration 49 has no `left_out`: the name means the null around it there.
SELECT t.* FROM (SELECT CAST(NULL AS bigint) AS left_out) older CROSS JOIN LATERAL (
       SELECT topology, job, by_interval, zone, streams, newest_txid, current_to_txid, committed_at, whole_to, in_flight, failing,
              waiting, gaps, left_out
         FROM report.topologies WHERE topology = :topology) t;

-- page_known --
-- A topology that is known, without a look at what it waits for.
SELECT zone, newest_txid FROM report.topologies WHERE topology = :topology;

-- page_partitioned --
-- Those of some streams that are read by partitions or files.
SELECT s FROM unnest(CAST(:streams AS text[])) s
 WHERE EXISTS (SELECT FROM report.partitions p WHERE p.topology = :topology AND p.stream = s AND p.partition > '');

-- page_states --
-- The states of a topology, without its quarantine.
SELECT state, topology, kind, key_columns, value_columns, contributions, apart, horizon, merged_by_job, past_from, past_to
  FROM report.states WHERE topology = :topology AND state <> topology || '_quarantine' ORDER BY state;

-- page_failing --
-- The batches in flight whose newest attempt has failed, and why.
SELECT a.txid, a.attempt, a.finished_at, a.error, a.error_code
  FROM report.exceptional_txids e JOIN report.batches b USING (topology, txid)
  JOIN report.attempts a ON (a.topology, a.txid, a.attempt_id) = (b.topology, b.txid, b.attempts)
 WHERE e.topology = :topology AND e.look = 'failing' ORDER BY a.txid LIMIT :limit;

-- page_waiting --
-- Who waits for whom.
SELECT txid, run, waits_for_txid, waits_for_run, lease_live AS alive, extract(epoch FROM waited)::float8 AS seconds
  FROM report.waiting WHERE topology = :topology ORDER BY txid NULLS LAST, since LIMIT :limit;

-- page_exceptions --
-- The newest txids that are not simply committed.
SELECT txid, look FROM report.exceptional_txids WHERE topology = :topology ORDER BY txid DESC LIMIT :limit;

-- page_batches --
-- Batches by their keys, newest first: those of some txids, or those below a txid, of a status. Before migration 50 without `aborted_at`.
SELECT b.* FROM (SELECT CAST(NULL AS timestamptz) AS aborted_at) older CROSS JOIN LATERAL (
       SELECT b.txid, b.position, b.kind, b.status, b.final, b.interval_start, b.interval_end, b.attempts, b.records, b.kept, b.keys,
              b.late, b.ahead, b.dag_id, b.run_id, b.run, b.lease_live, b.created_at, b.committed_at, aborted_at, b.reason,
              b.requested_by, b.replaced_by,
              extract(epoch FROM b.duration)::float8 AS seconds, extract(epoch FROM b.emit_duration)::float8 AS emit_seconds,
              b.status IN ('planned', 'emitted') AND (
                  SELECT a.status = 'failed' FROM report.attempts a
                   WHERE a.topology = b.topology AND a.txid = b.txid AND a.attempt_id = b.attempts) IS TRUE AS failing
         FROM report.batches b
        WHERE b.topology = :topology AND (CAST(:before AS bigint) IS NULL OR b.txid < CAST(:before AS bigint))
          AND (CAST(:status AS text) IS NULL OR b.status = CAST(:status AS text))
          AND (CAST(:txids AS bigint[]) IS NULL OR b.txid = ANY (CAST(:txids AS bigint[])))
        ORDER BY b.txid DESC LIMIT :limit) b;

-- page_committed --
-- The txid that was committed last before a time, by halves: all batches but skips are committed in the order of their txids.
WITH RECURSIVE halves (low, high) AS (
       SELECT CAST(0 AS bigint), CAST(:newest AS bigint)
        UNION ALL
       SELECT CASE WHEN e.early THEN h.middle ELSE h.low END, CASE WHEN e.early THEN h.high ELSE h.middle - 1 END
         FROM (SELECT low, high, (low + high + 1) / 2 AS middle FROM halves WHERE low < high) h
        CROSS JOIN LATERAL (
              SELECT COALESCE((
                     SELECT b.committed_at < :before FROM report.batches b
                      WHERE b.topology = :topology AND b.txid > h.low AND b.txid <= h.middle AND b.status = 'committed'
                        AND b.kind <> 'skip' ORDER BY b.txid DESC LIMIT 1), true) AS early) e)
SELECT (SELECT b.txid FROM report.batches b
         WHERE b.topology = :topology AND b.txid <= h.low AND b.status = 'committed' AND b.committed_at < :before
         ORDER BY b.txid DESC LIMIT 1) AS txid
  FROM halves h WHERE h.low >= h.high;

-- page_failing_txids --
-- The newest batches in flight whose newest attempt has failed, below a txid.
SELECT txid FROM report.exceptional_txids
 WHERE topology = :topology AND look = 'failing' AND (CAST(:before AS bigint) IS NULL OR txid < CAST(:before AS bigint))
 ORDER BY txid DESC LIMIT :limit;

-- page_run_txids --
-- The batches that a run of a DAG found or planned.
SELECT DISTINCT txid FROM report.batch_runs WHERE topology = :topology AND run_id = :run_id ORDER BY txid DESC LIMIT :limit;

-- page_attempts --
-- The attempts of a batch, newest first.
SELECT attempt_id, attempt, status, run, error, error_code, started_at, finished_at,
       extract(epoch FROM duration)::float8 AS seconds, code
  FROM report.attempts WHERE topology = :topology AND txid = :txid ORDER BY attempt_id DESC LIMIT :limit;

-- page_reads --
-- What a batch read of partitions and files, or could not read.
SELECT * FROM (
       SELECT stream, partition AS source, status, start_offset AS start, end_offset AS end, records, reason
         FROM report.partitions WHERE topology = :topology AND txid = :txid AND partition <> ''
        UNION ALL
       SELECT r.stream, r.source, 'read', r.start_offset, r.end_offset, NULL, NULL
         FROM report.batch_reads r
        WHERE r.topology = :topology AND r.txid = :txid AND NOT EXISTS (
              SELECT FROM report.partitions p
               WHERE p.topology = :topology AND p.txid = :txid AND p.stream = r.stream AND p.partition = r.source)) reads
 ORDER BY status = 'read', stream, source LIMIT :limit;

-- page_restates --
-- The restates of a position, oldest first.
SELECT txid, position, replaced_txid, status, reason, requested_by, created_at, committed_at, records_before, records, replaced_by
  FROM report.restatements WHERE topology = :topology AND position = :position ORDER BY txid LIMIT :limit;

-- page_given_up_by --
-- The txid that counts the records of an aborted batch as read: of the same run, for the same reason.
SELECT txid FROM report.batches
 WHERE topology = :topology AND kind = 'skip' AND txid > :txid AND reason = :reason
   AND run IS NOT DISTINCT FROM CAST(:run AS text)
   AND interval_start IS NOT DISTINCT FROM CAST(:start AS timestamptz) ORDER BY txid LIMIT 1;

-- page_gives_up --
-- The aborted batch whose records a txid counts as read.
SELECT txid FROM report.batches
 WHERE topology = :topology AND status = 'aborted' AND txid < :txid AND reason = :reason
   AND run IS NOT DISTINCT FROM CAST(:run AS text)
   AND interval_start IS NOT DISTINCT FROM CAST(:start AS timestamptz) ORDER BY txid DESC LIMIT 1;

-- page_interval_by --
-- The batch that has all of an interval now: the one that counts the interval, else an open one.
SELECT COALESCE(c.txid, b.txid) AS txid, COALESCE(c.kind, b.kind) AS kind, b.status
  FROM (SELECT * FROM report.batches
         WHERE topology = :topology AND interval_start <= CAST(:start AS timestamptz) AND status <> 'aborted' AND kind <> 'restate'
         ORDER BY interval_start DESC LIMIT 1) b
  LEFT JOIN LATERAL (
       SELECT r.txid, 'restate' AS kind FROM report.restatements r
        WHERE b.replaced_by IS NOT NULL AND r.topology = b.topology AND r.position = b.txid AND r.status = 'committed'
          AND r.replaced_by IS NULL LIMIT 1) c ON true
 WHERE b.interval_end >= CAST(:end AS timestamptz);

-- page_moments --
-- When a batch was committed, and its interval.
SELECT committed_at, interval_start, interval_end FROM report.batches WHERE topology = :topology AND txid = :txid;

-- page_proof --
-- What shows that a batch counts once: the attempt that counts, its records by partition, and whether a rebuild counted it anew.
SELECT (SELECT a.attempt FROM report.attempts a
         WHERE a.topology = :topology AND a.txid = :txid AND a.status = 'committed') AS attempt,
       (SELECT sum(p.records) FROM report.partitions p WHERE p.topology = :topology AND p.txid = :txid) AS records,
       EXISTS (SELECT FROM report.rebuilds r
                WHERE r.topology = :topology AND r.status = 'swapped' AND r.swapped_txid >= :txid) AS rebuilt;

-- page_span --
-- Begin and end of all intervals of a topology.
SELECT (SELECT interval_start FROM report.batches
         WHERE topology = :topology AND interval_start > '-infinity' AND status <> 'aborted' AND kind <> 'restate'
         ORDER BY interval_start LIMIT 1) AS first,
       (SELECT interval_end FROM report.batches
         WHERE topology = :topology AND interval_start > '-infinity' AND status <> 'aborted' AND kind <> 'restate'
         ORDER BY interval_start DESC LIMIT 1) AS last;

-- page_intervals --
-- The newest intervals that begin in a window of time; which txid counts each, what that one read, and why it was asked for.
SELECT b.interval_start, b.interval_end, b.txid, b.kind, b.status, b.attempts, b.run_id,
       CASE WHEN b.status <> 'committed' THEN NULL WHEN b.replaced_by IS NULL THEN b.txid ELSE c.txid END AS counts,
       CASE WHEN b.replaced_by IS NULL THEN b.records ELSE c.records END AS records,
       CASE WHEN b.replaced_by IS NULL THEN b.reason ELSE c.reason END AS reason,
       CASE WHEN b.replaced_by IS NULL THEN b.requested_by ELSE c.requested_by END AS requested_by,
       b.status IN ('planned', 'emitted') AND EXISTS (
           SELECT FROM report.attempts a
            WHERE a.topology = b.topology AND a.txid = b.txid AND a.attempt_id = b.attempts AND a.status = 'failed') AS failing
  FROM report.batches b
  LEFT JOIN LATERAL (
       SELECT r.txid, r.records, r.reason, r.requested_by FROM report.restatements r
        WHERE b.replaced_by IS NOT NULL AND r.topology = b.topology AND r.position = b.txid AND r.status = 'committed'
          AND r.replaced_by IS NULL LIMIT 1) c ON true
 WHERE b.topology = :topology AND b.interval_start >= :start AND b.interval_start < :end
   AND b.status <> 'aborted' AND b.kind <> 'restate'
 ORDER BY b.interval_start DESC LIMIT :limit;

-- page_gaps --
-- The newest of what is not counted in a window of time, and the newest batch that was given up there. Before migration 50 without when.
  WITH aborted AS MATERIALIZED (
       SELECT b.* FROM (SELECT CAST(NULL AS timestamptz) AS aborted_at) older CROSS JOIN LATERAL (
              SELECT txid, interval_start, interval_end, aborted_at, reason FROM report.batches
               WHERE topology = :topology AND status = 'aborted' AND kind <> 'restate' AND interval_start < :end
               ORDER BY txid DESC LIMIT :limit) b)
SELECT g.gap_start, g.gap_end, g.txid, g.status, a.txid AS aborted, a.interval_start, a.interval_end, a.aborted_at, a.reason
  FROM (SELECT gap_start, gap_end, txid, status FROM report.gaps
         WHERE topology = :topology AND gap_end > :start AND gap_start < :end ORDER BY gap_start DESC LIMIT :limit) g
  LEFT JOIN LATERAL (
       SELECT * FROM aborted b
        WHERE g.txid IS NULL AND b.interval_start >= g.gap_start AND b.interval_start < g.gap_end
        ORDER BY b.interval_start DESC, b.txid DESC LIMIT 1) a ON true
 ORDER BY g.gap_start DESC;

-- page_partitions --
-- Partitions by name, after one, with a part of their name.
SELECT stream, partition, consumed_to, current_to_txid, current_to, unreadable_since_txid
  FROM report.completeness
 WHERE topology = :topology AND partition <> '' AND (stream, partition) > (:stream, :after)
   AND (CAST(:search AS text) = '' OR strpos(partition, CAST(:search AS text)) > 0)
 ORDER BY stream, partition LIMIT :limit;

-- page_cells --
-- What batches of some txids read of some partitions.
SELECT p.stream, p.partition, p.txid, p.status, p.start_offset AS start, p.end_offset AS end, p.records, p.reason
  FROM unnest(CAST(:streams AS text[]), CAST(:partitions AS text[])) AS a (stream, partition)
  JOIN report.partitions p ON p.topology = :topology AND p.stream = a.stream AND p.partition = a.partition
 WHERE p.txid BETWEEN :first AND :last ORDER BY p.stream, p.partition, p.txid LIMIT :limit;
