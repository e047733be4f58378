-- What reports of all topologies need, without a look at each batch; and what a reader of the schema report still lacked.

-- The zone in which a schedule cuts intervals: days of New York are no days of UTC.
ALTER TABLE txbatch.topology ADD COLUMN zone text;

-- The records of all batches that count, as of the commit of this one; null: committed before, and not the newest, or a skip.
ALTER TABLE txbatch.batch ADD COLUMN records_to bigint;

-- What is not simply committed is found by index; all other txids are: txids have no gaps.
CREATE INDEX batch_aborted ON txbatch.batch (topology, txid) WHERE status = 'aborted';
CREATE INDEX batch_skip ON txbatch.batch (topology, txid) WHERE kind = 'skip';
CREATE INDEX batch_closing ON txbatch.batch (topology, txid) WHERE closed_to IS NOT NULL;
CREATE INDEX batch_key_run ON txbatch.batch_key (topology, run_id, txid) WHERE run_id IS NOT NULL;
CREATE INDEX partition_unreadable ON txbatch.partition (topology, stream, partition, txid) WHERE status = 'unreadable';

-- The time that committed batches cover, by stretches: two that touch may stand apart, none is missing.
CREATE TABLE txbatch.counted (
    topology text COLLATE "C" NOT NULL REFERENCES txbatch.topology ON UPDATE CASCADE,
    starts   timestamptz NOT NULL,
    ends     timestamptz NOT NULL,
    PRIMARY KEY (topology, starts),
    CHECK (starts < ends)
);

INSERT INTO txbatch.counted (topology, starts, ends)
SELECT topology, lower(r), upper(r)
  FROM (SELECT topology, unnest(range_agg(data_interval)) AS r FROM txbatch.batch
         WHERE data_interval IS NOT NULL AND status = 'committed' AND kind <> 'restate' GROUP BY topology) i;

UPDATE txbatch.batch b SET records_to = s.records
  FROM (SELECT topology, max(txid) AS txid, COALESCE(sum(records) FILTER (WHERE replaced_by IS NULL), 0)::bigint AS records
          FROM txbatch.batch WHERE status = 'committed' AND kind <> 'skip' GROUP BY topology) s
 WHERE b.topology = s.topology AND b.txid = s.txid;

CREATE OR REPLACE VIEW report.gaps AS
SELECT t.topology, g.gap_start, g.gap_end, g.txid, g.status, g.attempt_status, g.run, g.lease_live
  FROM txbatch.topology t
 CROSS JOIN LATERAL (
       SELECT range_agg(tstzrange(c.starts, c.ends)) AS intervals FROM txbatch.counted c WHERE c.topology = t.topology) w
 CROSS JOIN LATERAL (
       SELECT lower(i) AS gap_start, upper(i) AS gap_end, NULL::bigint AS txid, NULL::text AS status,
              NULL::text AS attempt_status, NULL::text AS run, NULL::boolean AS lease_live
         FROM unnest(multirange(range_merge(w.intervals)) - w.intervals - COALESCE(
              (SELECT range_agg(h.data_interval) FROM txbatch.batch h
                WHERE h.topology = t.topology AND h.status IN ('planned', 'emitted') AND h.kind <> 'restate'
                  AND range_merge(w.intervals) @> h.data_interval), '{}')) i
        UNION ALL
       SELECT lower(b.data_interval), upper(b.data_interval), b.txid, b.status, a.status, b.lease_run,
              b.lease_until > statement_timestamp()
         FROM txbatch.batch b
         LEFT JOIN txbatch.attempt a ON (a.topology, a.txid, a.attempt_id) = (b.topology, b.txid, b.fence)
        WHERE b.topology = t.topology AND b.status IN ('planned', 'emitted') AND b.kind <> 'restate'
          AND range_merge(w.intervals) @> b.data_interval) g;

CREATE OR REPLACE VIEW txbatch.missing AS
SELECT t.topology, s.key AS stream, x.partition, f.since
  FROM txbatch.topology t
 CROSS JOIN LATERAL (
       SELECT b.txid, b.metadata FROM txbatch.batch b
        WHERE b.topology = t.topology AND b.status <> 'aborted' AND b.kind = 'ordinary' ORDER BY b.txid DESC LIMIT 1) n
 CROSS JOIN LATERAL json_each(n.metadata -> 'streams') s
 CROSS JOIN LATERAL (
       SELECT DISTINCT e AS partition FROM json_array_elements_text(
              CASE WHEN json_typeof(s.value -> 'missing') = 'array' THEN s.value -> 'missing' ELSE '[]' END) e) x
  LEFT JOIN txbatch.consumed c ON (c.topology, c.stream, c.partition) = (t.topology, s.key, x.partition)
 CROSS JOIN LATERAL (
       SELECT min(b.created_at) AS since FROM txbatch.batch b
        WHERE b.topology = t.topology AND b.txid > COALESCE(c.txid, 0) AND b.status <> 'aborted' AND b.kind = 'ordinary'
          AND x.partition IN (SELECT json_array_elements_text(
              CASE WHEN json_typeof(b.metadata -> 'streams' -> s.key -> 'missing') = 'array'
                   THEN b.metadata -> 'streams' -> s.key -> 'missing' ELSE '[]' END))) f
 WHERE n.txid > COALESCE(c.txid, 0);

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
SELECT t.topology, s.stream, '', to_char(i.whole_to AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), b.txid,
       b.committed_at, NULL, NULL, NULL, NULL
  FROM txbatch.topology t
 CROSS JOIN LATERAL (
       SELECT upper((SELECT r FROM unnest(range_agg(tstzrange(c.starts, c.ends))) r ORDER BY r LIMIT 1)) AS whole_to
         FROM txbatch.counted c WHERE c.topology = t.topology) i
 CROSS JOIN LATERAL (
       SELECT b.topology, b.txid, b.committed_at FROM txbatch.batch b
        WHERE b.topology = t.topology AND b.data_interval IS NOT NULL AND b.status = 'committed' AND b.kind <> 'restate'
          AND lower(b.data_interval) < i.whole_to AND upper(b.data_interval) = i.whole_to
        ORDER BY lower(b.data_interval) DESC LIMIT 1) b
  JOIN txbatch.partition s ON (s.topology, s.txid, s.partition) = (b.topology, b.txid, '');

-- A topology at a glance: each column by an index, none by a look at all batches.
CREATE VIEW report.topologies AS
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
       (SELECT count(*) FROM report.gaps g WHERE g.topology = t.topology) AS gaps
  FROM txbatch.topology t;

-- The states, and as of which txids each can be asked, without what rebuilds replaced (R19).
CREATE VIEW report.states AS
SELECT s.state, s.topology, s.kind,
       (SELECT json_agg(json_build_object('name', k.name ->> 0, 'type', COALESCE(
               (SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
                 WHERE a.attrelid = CASE WHEN s.database IS NULL THEN to_regclass(format('report.%I', s.state)) END
                   AND a.attname::text = k.name ->> 0), k.name ->> 1)) ORDER BY k.place)
          FROM json_array_elements(s.columns -> 'keys') WITH ORDINALITY k (name, place)) AS key_columns,
       (SELECT json_agg(json_build_object('name', a.attname, 'type', format_type(a.atttypid, a.atttypmod)) ORDER BY a.attnum)
          FROM pg_attribute a
         WHERE a.attrelid = CASE WHEN s.database IS NULL THEN to_regclass(format('report.%I', s.state)) END
           AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> 'txid'
           AND a.attname::text NOT IN (SELECT k ->> 0 FROM json_array_elements(s.columns -> 'keys') k)) AS value_columns,
       s.contributions, s.database AS apart, s.horizon,
       EXISTS (SELECT FROM json_array_elements(s.columns -> 'values') v
                WHERE v ->> (json_array_length(v) - 1) LIKE '%.combine') AS merged_by_job,
       CASE WHEN s.contributions THEN
            GREATEST(s.horizon, (SELECT max(r.swapped_txid) + 1 FROM txbatch.rebuild r WHERE r.topology = s.topology))
       END AS past_from,
       CASE WHEN s.contributions THEN
            LEAST(COALESCE((SELECT max(b.txid) FROM txbatch.batch b
                             WHERE b.topology = s.topology AND b.status = 'committed'), 0),
                  (SELECT min(b.txid) - 1 FROM txbatch.batch b
                    WHERE b.topology = s.topology AND b.status IN ('planned', 'emitted')))
       END AS past_to,
       s.columns
  FROM txbatch.state s;

-- What a state was before rebuilds took its place; a state that a rebuild brought has no columns here.
CREATE VIEW report.past_states AS
SELECT s.state, s.topology, r.rebuild, r.swapped_txid, r.dropped_at IS NULL AS past_kept,
       (r.past -> s.state ->> 'horizon')::bigint AS horizon, r.past -> s.state -> 'columns' AS columns,
       r.past -> s.state -> 'left' AS windows_left
  FROM txbatch.state s JOIN txbatch.rebuild r USING (topology) WHERE r.status = 'swapped';

-- Which batches a run of a DAG found or planned.
CREATE VIEW report.batch_runs AS
SELECT topology, txid, dag_id, run_id FROM txbatch.batch_key WHERE run_id IS NOT NULL;

-- The txids that are not simply committed; all others up to the newest are, for txids have no gaps.
CREATE VIEW report.exceptional_txids AS
SELECT b.topology, b.txid, CASE WHEN a.status = 'failed' THEN 'failing' ELSE b.status END AS look
  FROM txbatch.batch b
  LEFT JOIN txbatch.attempt a ON (a.topology, a.txid, a.attempt_id) = (b.topology, b.txid, b.fence)
 WHERE b.status IN ('planned', 'emitted')
 UNION ALL
SELECT topology, txid, 'aborted' FROM txbatch.batch WHERE status = 'aborted'
 UNION ALL
SELECT topology, txid, 'skip' FROM txbatch.batch WHERE kind = 'skip' AND replaced_by IS NULL
 UNION ALL
SELECT topology, txid, 'restate' FROM txbatch.batch WHERE kind = 'restate' AND status = 'committed' AND replaced_by IS NULL
 UNION ALL
SELECT topology, txid, 'replaced' FROM txbatch.batch WHERE replaced_by IS NOT NULL;

CREATE OR REPLACE VIEW report.windows_left AS
SELECT s.topology, state, (p.kept ->> 'keep')::bigint * interval '1 microsecond' AS keep,
       COALESCE(l.kept, p.kept) -> 'window' ->> 'gap' IS NOT NULL AS sessions,
       timestamptz 'epoch' + l.left_before * interval '1 microsecond' AS left_before,
       COALESCE(l.windows, 0) AS windows, l.records, l.txid, l.left_at, l.kept
  FROM (SELECT w.key AS state, w.value AS kept
          FROM txbatch.topology t CROSS JOIN LATERAL json_each(t.keep -> 'windows') w) p
  FULL JOIN txbatch.windows_left l USING (state)
  JOIN txbatch.state s USING (state);

COMMENT ON COLUMN report.windows_left.kept IS 'How windows were cut, and kept, when the last window left; null: none has left';
COMMENT ON VIEW report.topologies IS 'One row per topology: how far the topology is counted, and the obstacles.';
COMMENT ON COLUMN report.topologies.topology IS 'The pipeline, with the name of the DAG';
COMMENT ON COLUMN report.topologies.job IS 'The job file with the definition';
COMMENT ON COLUMN report.topologies.by_interval IS 'True: each batch covers an interval of time';
COMMENT ON COLUMN report.topologies.zone IS 'The time zone in which the schedule cuts intervals; null: not known, or no schedule';
COMMENT ON COLUMN report.topologies.streams IS 'The fields of each stream with their types; null: not known yet';
COMMENT ON COLUMN report.topologies.newest_txid IS 'The newest transaction, of any status; null before the first';
COMMENT ON COLUMN report.topologies.current_to_txid IS 'The newest committed transaction; null before the first';
COMMENT ON COLUMN report.topologies.committed_at IS 'When the transaction current_to_txid was committed';
COMMENT ON COLUMN report.topologies.whole_to IS 'By time: everything from the first interval up to whole_to is counted, without a gap';
COMMENT ON COLUMN report.topologies.in_flight IS 'Number of planned and emitted batches';
COMMENT ON COLUMN report.topologies.failing IS 'Number of batches in flight with a failed newest attempt';
COMMENT ON COLUMN report.topologies.waiting IS 'Number of rows in report.waiting';
COMMENT ON COLUMN report.topologies.gaps IS 'Number of rows in report.gaps';
COMMENT ON VIEW report.states IS 'One row per state: keys, values, and the transactions for questions about the past.';
COMMENT ON COLUMN report.states.state IS 'The state, reported as report.<state>';
COMMENT ON COLUMN report.states.topology IS 'The pipeline of the state';
COMMENT ON COLUMN report.states.kind IS 'non_transactional, transactional or opaque: how the state guards against a replayed batch';
COMMENT ON COLUMN report.states.key_columns IS 'Name and type of each key; null: the state is one global value';
COMMENT ON COLUMN report.states.value_columns IS 'Name and type of each value in the report; null for a state apart';
COMMENT ON COLUMN report.states.contributions IS 'True: the contribution of each batch is kept, and so is the past';
COMMENT ON COLUMN report.states.apart IS 'The name of the database apart with the state; null: the database of the ledger';
COMMENT ON COLUMN report.states.horizon IS 'The newest folded batch; 0: no batch is folded';
COMMENT ON COLUMN report.states.merged_by_job IS 'True: Python of the job merges a value, and the job alone can tell the past';
COMMENT ON COLUMN report.states.past_from IS 'The first transaction for a question about the past; null: the past is not kept';
COMMENT ON COLUMN report.states.past_to IS 'The last transaction for a question about the past; null: the past is not kept';
COMMENT ON COLUMN report.states.columns IS 'The stored definition of keys, values and aggregates';
COMMENT ON VIEW report.past_states IS 'One row per state and rebuild: the state before the rebuild.';
COMMENT ON COLUMN report.past_states.state IS 'The state';
COMMENT ON COLUMN report.past_states.topology IS 'The pipeline';
COMMENT ON COLUMN report.past_states.rebuild IS 'The rebuild with new rows for the state';
COMMENT ON COLUMN report.past_states.swapped_txid IS 'The newest committed transaction at the end of the rebuild';
COMMENT ON COLUMN report.past_states.past_kept IS 'True: the schema report_past_<rebuild> still has the earlier rows';
COMMENT ON COLUMN report.past_states.horizon IS 'The newest folded batch of the earlier rows';
COMMENT ON COLUMN report.past_states.columns IS 'The definition of the earlier rows; null: the state came with the rebuild';
COMMENT ON COLUMN report.past_states.windows_left IS 'Windows without rows before the rebuild, by retention; null: none';
COMMENT ON VIEW report.batch_runs IS 'One row per batch and DAG run of the batch: several runs may share a batch.';
COMMENT ON COLUMN report.batch_runs.topology IS 'The pipeline';
COMMENT ON COLUMN report.batch_runs.txid IS 'The batch';
COMMENT ON COLUMN report.batch_runs.dag_id IS 'The DAG';
COMMENT ON COLUMN report.batch_runs.run_id IS 'The run of that DAG';
COMMENT ON VIEW report.exceptional_txids IS 'Transactions in flight, aborted, given up, restated or replaced; every txid not listed, up to the newest, is committed.';
COMMENT ON COLUMN report.exceptional_txids.topology IS 'The pipeline';
COMMENT ON COLUMN report.exceptional_txids.txid IS 'The batch';
COMMENT ON COLUMN report.exceptional_txids.look IS 'planned or emitted; failing: in flight, and the newest attempt has failed; aborted; skip: given up; restate: counts a batch again; replaced: a restate counts instead';
