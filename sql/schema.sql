-- The desired database: what `txbatch migrate` arrives at. A test proves that migrations/ end here.
-- State tables (state.*), contributions (contribution.*) and their report views are made per topology by the library.

CREATE SCHEMA IF NOT EXISTS txbatch;
CREATE SCHEMA IF NOT EXISTS state;
CREATE SCHEMA contribution;
CREATE SCHEMA contribution_partition;
CREATE SCHEMA contribution_base;
CREATE SCHEMA IF NOT EXISTS report;

COMMENT ON SCHEMA txbatch IS 'The ledger: topologies, batches, attempts, partitions. Written by txbatch only.';
COMMENT ON SCHEMA state IS 'One table per state: keys, values, txid. Written by txbatch only.';
COMMENT ON SCHEMA contribution IS 'The contribution of each batch to each key. The values in state are the fold of these contributions.';
COMMENT ON SCHEMA contribution_base IS 'Contributions folded by retention: one row per key.';
COMMENT ON SCHEMA report IS 'For people: whole batches only.';

CREATE TABLE txbatch.migration (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- Which ledger this is: a state in another database (R21) belongs to one of them.
CREATE TABLE txbatch.ledger (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    uuid uuid NOT NULL DEFAULT gen_random_uuid()
);

INSERT INTO txbatch.ledger DEFAULT VALUES;

CREATE TABLE txbatch.topology (
    topology    text COLLATE "C" PRIMARY KEY,
    job         text NOT NULL,                       -- the job file that defines it
    by_interval boolean NOT NULL,                    -- how batches are found again (R2)
    source      json,                                -- the source identity, stored with txid 1 (R2)
    created_at  timestamptz NOT NULL DEFAULT now(),
    streams     json,                                -- the fields of each stream with their types (R23); null: not known yet
    keep        json,                                -- how much of its past is kept (R22); null: all of it
    watermarks  json,                                -- the watermarks of its streams (R25); null: none has one
    digest      text,                                -- of the definition (R23); null: not known yet
    zone        text                                 -- in which its schedule cuts intervals; null: not known
);

CREATE TABLE txbatch.state (
    state         text COLLATE "C" PRIMARY KEY,
    topology      text COLLATE "C" NOT NULL REFERENCES txbatch.topology ON UPDATE CASCADE,
    kind          text NOT NULL CHECK (kind IN ('non_transactional', 'transactional', 'opaque')),
    contributions boolean NOT NULL,
    columns       json NOT NULL,                     -- keys and values with their types
    database      text,                              -- the other database it is kept in, apart (R21)
    applied_txid  bigint,                            -- apart: the last txid committed there
    streams       json,                              -- the streams that it counts (R23); null: not known yet
    horizon       bigint NOT NULL DEFAULT 0 CHECK (horizon >= 0),  -- contributions up to this txid are folded (R22)
    values_since  json,                              -- of values that joined later, the first txid that counts for each (R23)
    joined        bigint NOT NULL DEFAULT 1 CHECK (joined >= 1),  -- the first txid that it can have counted (R23)
    left_in       text,                              -- the other database that may still have a copy, which does not count (R21)
    pruned        json,                              -- of which positions rows have gone: spans after a txid, up to another (R22); null: none
    CHECK (database IS NULL OR NOT contributions),
    CHECK (applied_txid IS NULL OR database IS NOT NULL),
    CHECK (left_in <> database)
);

-- Which windows have left a state (R30). They are told by the column by which they close, in microseconds since 1970.
CREATE TABLE txbatch.windows_left (
    state       text COLLATE "C" PRIMARY KEY REFERENCES txbatch.state ON UPDATE CASCADE ON DELETE CASCADE,
    kept        json NOT NULL,                       -- the policy then, with how windows are cut
    left_before bigint NOT NULL,                     -- all windows before that have left
    txid        bigint NOT NULL,                     -- the newest committed one when the last of them left
    windows     bigint NOT NULL,                     -- how many have left
    records     bigint,                              -- of how many records they were made; null: not known
    left_at     timestamptz NOT NULL                 -- when the last of them did
);

-- planned -> emitted -> committed; planned or emitted -> aborted. A re-emission goes emitted -> planned.
CREATE TABLE txbatch.batch (
    topology        text COLLATE "C" NOT NULL REFERENCES txbatch.topology ON UPDATE CASCADE,
    txid            bigint NOT NULL CHECK (txid >= 1),
    position        bigint NOT NULL CHECK (position BETWEEN 1 AND txid),  -- the ordinary txid it stands for
    kind            text NOT NULL DEFAULT 'ordinary' CHECK (kind IN ('ordinary', 'restate', 'skip')),
    status          text NOT NULL DEFAULT 'planned' CHECK (status IN ('planned', 'emitted', 'committed', 'aborted')),
    key             text NOT NULL,                   -- the batch key (R2)
    data_interval   tstzrange,
    metadata        json NOT NULL,                   -- exactly which records; never changed (R3)
    prev_txid       bigint,                          -- whose metadata the plan continues (R3)
    fence           integer NOT NULL DEFAULT 0 CHECK (fence >= 0),        -- newest attempt_id (R5)
    token           text,
    lease_run       text,                            -- the run that looks after it, until:
    lease_until     timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    committed_at    timestamptz,
    committed_fence integer,
    records         bigint,
    keys            json,                            -- keys changed, by state
    succeeded_at    timestamptz,
    aborted_at      timestamptz,
    reason          text,
    kept            json,                            -- records that reached each state, by state
    replaced_by     bigint,                          -- the restate that counts in its place (R17)
    requested_by    text,                            -- who asked for it, where a person did
    watermark       json,                            -- where the watermarks are since its commit, by stream (R25)
    late            json,                            -- records that were late by its plan, by state
    closed_to       json,                            -- up to when windows are closed since its commit, by state (R26)
    closed          json,                            -- windows that it closed, by state: their key, first start, and end of starts
    ahead           bigint,                          -- records of a time after it was planned; null: none (R25)
    ahead_to        bigint,                          -- the greatest of their times, in microseconds since 1970
    abandoned       boolean NOT NULL DEFAULT false,  -- aborted by a run, so that its own run plans anew (R6)
    records_to      bigint,                          -- of all batches that count, as of its commit; null: not known
    came_late       json,                            -- late records that it met of earlier intervals, by stream, position and file; null: it did not look
    found_by        bigint,                          -- of a restate by a look back: the batch that met the late records (R17)
    PRIMARY KEY (topology, txid),
    CHECK (kind = 'restate' OR position = txid),
    CHECK ((status = 'committed') = (committed_at IS NOT NULL)),
    CHECK ((status = 'committed' AND kind <> 'skip') = (committed_fence IS NOT NULL)),
    CHECK (committed_fence = fence),
    CHECK ((status = 'aborted') = (aborted_at IS NOT NULL)),
    CHECK (status <> 'aborted' OR reason IS NOT NULL),
    CONSTRAINT batch_abandoned_check CHECK (NOT abandoned OR status = 'aborted'),
    CONSTRAINT batch_found_by_check CHECK (found_by IS NULL OR kind = 'restate'),
    CHECK (status NOT IN ('emitted', 'committed') OR kind = 'skip' OR fence > 0),
    CHECK ((fence = 0) = (token IS NULL)),
    CHECK (succeeded_at IS NULL OR status = 'committed'),
    CONSTRAINT batch_replaced_check CHECK (replaced_by IS NULL OR (replaced_by > txid AND status = 'committed')),
    CHECK (data_interval IS NULL
        OR (NOT isempty(data_interval) AND lower_inc(data_interval) AND NOT upper_inc(data_interval)))
);

CREATE INDEX batch_open ON txbatch.batch (topology, txid) WHERE status IN ('planned', 'emitted');
-- What is not simply committed is found by index; all other txids are: txids have no gaps.
CREATE INDEX batch_aborted ON txbatch.batch (topology, txid) WHERE status = 'aborted';
CREATE INDEX batch_skip ON txbatch.batch (topology, txid) WHERE kind = 'skip';
CREATE INDEX batch_closing ON txbatch.batch (topology, txid) WHERE closed_to IS NOT NULL;
CREATE INDEX batch_ordinary ON txbatch.batch (topology, txid) WHERE status <> 'aborted' AND kind <> 'restate';
CREATE INDEX batch_interval ON txbatch.batch (topology, lower(data_interval))
    WHERE data_interval IS NOT NULL AND status <> 'aborted' AND kind <> 'restate';
CREATE INDEX batch_replaced ON txbatch.batch (topology, txid, replaced_by) WHERE replaced_by IS NOT NULL;
CREATE INDEX batch_came_late ON txbatch.batch (topology, txid) WHERE CAST(came_late AS text) <> '{}';
CREATE INDEX batch_restate ON txbatch.batch (topology, position, txid) WHERE kind = 'restate';

-- Few batches have met late records: without this, the planner takes all for such batches, and looks at each.
CREATE STATISTICS txbatch.batch_met_late ON CAST(came_late AS text) FROM txbatch.batch;

-- What each committed ordinary batch counted: `states` is the same for batches whose keys name the same states, whatever the numbers.
CREATE VIEW txbatch.counting AS
SELECT topology, txid, keys,
       CAST(lpad(to_hex(hashtextextended(regexp_replace(
           COALESCE(CAST(keys AS text), ''), '("(?:[^"\\]|\\.)*")\s*:\s*[0-9]+', '\1', 'g'), 0)), 32, '0') AS uuid) AS states
  FROM txbatch.batch WHERE status = 'committed' AND kind = 'ordinary';

CREATE INDEX batch_counting ON txbatch.batch (topology, CAST(lpad(to_hex(hashtextextended(regexp_replace(
           COALESCE(CAST(keys AS text), ''), '("(?:[^"\\]|\\.)*")\s*:\s*[0-9]+', '\1', 'g'), 0)), 32, '0') AS uuid), txid)
    WHERE status = 'committed' AND kind = 'ordinary';

-- A run finds its batch here; several runs may share one (adoption), and a run gets the next ordinal after an abort.
CREATE TABLE txbatch.batch_key (
    topology text COLLATE "C" NOT NULL,
    key      text COLLATE "C" NOT NULL,
    ordinal  integer NOT NULL CHECK (ordinal >= 1),
    txid     bigint NOT NULL,
    dag_id   text,
    run_id   text,
    PRIMARY KEY (topology, key, ordinal),
    FOREIGN KEY (topology, txid) REFERENCES txbatch.batch ON UPDATE CASCADE
);

CREATE INDEX batch_key_txid ON txbatch.batch_key (topology, txid);
CREATE INDEX batch_key_run ON txbatch.batch_key (topology, run_id, txid) WHERE run_id IS NOT NULL;

CREATE TABLE txbatch.attempt (
    topology    text COLLATE "C" NOT NULL,
    txid        bigint NOT NULL,
    attempt_id  integer NOT NULL CHECK (attempt_id >= 1),
    token       text NOT NULL UNIQUE,
    status      text NOT NULL DEFAULT 'emitting' CHECK (status IN ('emitting', 'emitted', 'failed', 'superseded', 'committed')),
    run         text NOT NULL,
    code        text NOT NULL,                       -- sha256 of the job file
    manifest    json,
    error       text,
    started_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    PRIMARY KEY (topology, txid, attempt_id),
    FOREIGN KEY (topology, txid) REFERENCES txbatch.batch ON UPDATE CASCADE,
    CHECK ((status IN ('emitted', 'committed')) <= (manifest IS NOT NULL)),
    CHECK ((status = 'failed') = (error IS NOT NULL))
);

-- What each committed batch read of each partition, and the holes it left.
CREATE TABLE txbatch.partition (
    topology    text COLLATE "C" NOT NULL,
    stream      text COLLATE "C" NOT NULL,
    partition   text COLLATE "C" NOT NULL,
    txid        bigint NOT NULL,
    status      text NOT NULL CHECK (status IN ('read', 'unreadable', 'skipped')),
    metadata    json NOT NULL,                       -- the range as read
    records     bigint,
    fingerprint numeric(38, 0),
    reason      text,
    PRIMARY KEY (topology, stream, partition, txid),
    FOREIGN KEY (topology, txid) REFERENCES txbatch.batch ON UPDATE CASCADE,
    CHECK ((status = 'read') = (records IS NOT NULL AND fingerprint IS NOT NULL))
);

CREATE INDEX partition_txid ON txbatch.partition (topology, txid);
CREATE INDEX partition_unreadable ON txbatch.partition (topology, stream, partition, txid) WHERE status = 'unreadable';

-- The time that committed batches cover, by stretches: two that touch may stand apart, none is missing.
CREATE TABLE txbatch.counted (
    topology text COLLATE "C" NOT NULL REFERENCES txbatch.topology ON UPDATE CASCADE,
    starts   timestamptz NOT NULL,
    ends     timestamptz NOT NULL,
    PRIMARY KEY (topology, starts),
    CHECK (starts < ends)
);

-- Where each partition's next batch starts.
CREATE TABLE txbatch.consumed (
    topology  text COLLATE "C" NOT NULL REFERENCES txbatch.topology ON UPDATE CASCADE,
    stream    text COLLATE "C" NOT NULL,
    partition text COLLATE "C" NOT NULL,
    txid      bigint NOT NULL,
    metadata  json NOT NULL,                         -- the last committed range
    latest    bigint,                                -- the largest time that was read of it, in microseconds since 1970 (R25)
    PRIMARY KEY (topology, stream, partition)
) WITH (fillfactor = 85);

-- The partitions that are behind (R25): a batch could not read them, or an aborted one was to, since they were read last.
CREATE TABLE txbatch.behind (
    topology  text COLLATE "C" NOT NULL REFERENCES txbatch.topology ON UPDATE CASCADE,
    stream    text COLLATE "C" NOT NULL,
    partition text COLLATE "C" NOT NULL,
    txid      bigint NOT NULL,                       -- the newest such batch
    PRIMARY KEY (topology, stream, partition)
);

-- Runs that have no batch yet, for as many as allowed are in flight (R6); the view report.waiting shows those that still wait.
CREATE TABLE txbatch.waiting (
    topology text COLLATE "C" NOT NULL REFERENCES txbatch.topology ON UPDATE CASCADE,
    run      text COLLATE "C" NOT NULL,
    txid     bigint NOT NULL,                        -- it waits for the end of this one
    since    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (topology, run)
);

-- Names that a living process holds; that it lives is told by an advisory lock of its session, whose key nobody can guess.
CREATE TABLE txbatch.running (
    topology text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,              -- a run's, or what one process alone does for all
    key      bigint NOT NULL,
    role     oid NOT NULL,                           -- whose sessions' locks count
    since    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (topology, name)
);

CREATE VIEW report.batches AS
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
       b.ahead, timestamptz 'epoch' + b.ahead_to * interval '1 microsecond' AS ahead_to,
       b.aborted_at
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

-- The windows that a batch closed: those of a state that begin, of sessions end, from one time to before another one (R26).
CREATE VIEW report.closings AS
SELECT b.topology, b.txid, c.key AS state, c.value ->> 0 AS window_key,
       timestamptz 'epoch' + (c.value ->> 1)::bigint * interval '1 microsecond' AS first_start,
       timestamptz 'epoch' + (c.value ->> 2)::bigint * interval '1 microsecond' AS before_start,
       timestamptz 'epoch' + (b.closed_to ->> c.key)::bigint * interval '1 microsecond' AS closed_to, b.committed_at
  FROM txbatch.batch b CROSS JOIN LATERAL json_each(b.closed) c
 WHERE b.status = 'committed';

-- An error may cite a record, and is for those roles alone that may read quarantines: sql/grants/reader.sql
CREATE VIEW report.attempts AS
SELECT a.topology, a.txid, a.attempt_id, a.txid || ':' || a.attempt_id AS attempt, a.status, a.run,
       CASE WHEN a.error IS NULL OR has_schema_privilege('state', 'USAGE') THEN a.error
            ELSE 'not shown to who may not read quarantines: `txbatch grants OWNER WRITER READER --quarantine`' END AS error,
       a.started_at, a.finished_at, a.finished_at - a.started_at AS duration, left(a.code, 12) AS code,
       substring(a.error FROM '^(TX[0-9]{3}) ') AS error_code
  FROM txbatch.attempt a;

CREATE VIEW report.partitions AS
SELECT topology, stream, partition, txid, status, metadata ->> 'start' AS start_offset, metadata ->> 'end' AS end_offset,
       records, fingerprint, reason
  FROM txbatch.partition;

-- Intervals between committed ones that are not counted: no batch has them, or one that is not committed (R2).
CREATE VIEW report.gaps AS
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

-- Who waits for whom, and since when: batches for their turn, and runs for a txid. `lease_live` is that of the one waited for.
-- A run that looks after an open batch waits as that batch, and in no second row.
CREATE VIEW report.waiting AS
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

-- The partitions that the newest plan of a topology says are listed no more, and since when: since the first such plan after
-- the partition was read last.
CREATE VIEW txbatch.missing AS
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

CREATE VIEW report.completeness AS
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

COMMENT ON VIEW report.batches IS 'One row per batch: a transaction of a topology, counted whole or not at all.';
COMMENT ON COLUMN report.batches.topology IS 'The pipeline, named as its DAG';
COMMENT ON COLUMN report.batches.txid IS 'The number of the transaction: 1, 2, 3, ... per topology';
COMMENT ON COLUMN report.batches.kind IS 'ordinary; restate: it counts another batch again, see position; or skip: a batch whose records were given up';
COMMENT ON COLUMN report.batches.status IS 'planned: the records are fixed; emitted: Spark has read the records; committed: the records count; aborted: the records are free for another batch';
COMMENT ON COLUMN report.batches.final IS 'True if the batch is committed and no earlier batch is open: no number up to this txid can still change';
COMMENT ON COLUMN report.batches.interval_start IS 'Begin of the time that the batch covers; null where batches are not by time';
COMMENT ON COLUMN report.batches.interval_end IS 'End of the time that the batch covers, exclusive; null where batches are not by time';
COMMENT ON COLUMN report.batches.attempts IS 'How often Spark was started for the batch';
COMMENT ON COLUMN report.batches.records IS 'Source records read, a CSV header not among them; after a rebuild, the records read by the rebuild';
COMMENT ON COLUMN report.batches.keys IS 'Keys changed, by state';
COMMENT ON COLUMN report.batches.dag_id IS 'The DAG of the run that planned it; null outside Airflow';
COMMENT ON COLUMN report.batches.run_id IS 'The run of that DAG; another run may have finished the batch, see run';
COMMENT ON COLUMN report.batches.created_at IS 'When the batch was planned';
COMMENT ON COLUMN report.batches.committed_at IS 'When its numbers could be seen first';
COMMENT ON COLUMN report.batches.duration IS 'From planning to commit, with all waits and retries';
COMMENT ON COLUMN report.batches.reason IS 'Why the batch was aborted, gave its records up, or counts another batch again';
COMMENT ON COLUMN report.batches.run IS 'The run that works on the batch, or was the last to do so, also outside Airflow';
COMMENT ON COLUMN report.batches.lease_live IS 'Whether that run has shown a sign of life lately; false for a batch that is over';
COMMENT ON COLUMN report.batches.kept IS 'Records that reached each state after filters and functions, by state; null for batches of older versions';
COMMENT ON COLUMN report.batches.emit_duration IS 'How long Spark took in the newest attempt';
COMMENT ON COLUMN report.batches.position IS 'The txid whose records the batch counts: the restated txid for a restate, its own txid for any other batch';
COMMENT ON COLUMN report.batches.replaced_by IS 'The restate that counts instead of this batch; null: the batch counts itself';
COMMENT ON COLUMN report.batches.requested_by IS 'Who asked for the restate; null for other batches';
COMMENT ON COLUMN report.batches.late IS 'Records of windows that had ended by the watermark of its plan, by state; null without a watermark';
COMMENT ON COLUMN report.batches.watermark IS 'Records up to this time are expected to be there since the commit: the least watermark of the streams; null without a watermark';
COMMENT ON COLUMN report.batches.closed_to IS 'Windows that end at or before this time are closed since the commit. With several states: the earliest time. Null if no state has closing windows';
COMMENT ON COLUMN report.batches.ahead IS 'Records of a time after the batch was planned, counted for the watermark with the time of planning; null: none, or no watermark';
COMMENT ON COLUMN report.batches.ahead_to IS 'The greatest time of the records in ahead, at most of the year 9999';
COMMENT ON COLUMN report.batches.aborted_at IS 'When the batch was aborted; null for any other batch';
COMMENT ON VIEW report.closings IS 'Windows or sessions of a state that a batch closed: later ordinary batches count no records there, except late records.';
COMMENT ON COLUMN report.closings.topology IS 'The pipeline';
COMMENT ON COLUMN report.closings.txid IS 'The closing batch';
COMMENT ON COLUMN report.closings.state IS 'The state';
COMMENT ON COLUMN report.closings.window_key IS 'The column of the state that has the starts of its windows, or the last times of its sessions';
COMMENT ON COLUMN report.closings.first_start IS 'Earliest start of the closed windows; of sessions the earliest last time';
COMMENT ON COLUMN report.closings.before_start IS 'Starts of the closed windows are before this time; of sessions the last times';
COMMENT ON COLUMN report.closings.closed_to IS 'Windows of the state that end at or before this time are closed since the commit; sessions, if end and gap are before this time';
COMMENT ON COLUMN report.closings.committed_at IS 'When the batch was committed';
COMMENT ON VIEW report.attempts IS 'An attempt: one try of Spark to read and aggregate a batch. Only the newest of a batch can be committed.';
COMMENT ON COLUMN report.attempts.topology IS 'The pipeline';
COMMENT ON COLUMN report.attempts.txid IS 'The batch';
COMMENT ON COLUMN report.attempts.attempt_id IS 'The try: 1, 2, 3, ...';
COMMENT ON COLUMN report.attempts.attempt IS 'txid and attempt_id, as logs write both: 7:2';
COMMENT ON COLUMN report.attempts.status IS 'emitting; emitted: ready to commit; committed: the attempt counts; failed; superseded: a newer attempt has replaced this attempt';
COMMENT ON COLUMN report.attempts.run IS 'The run that started the attempt';
COMMENT ON COLUMN report.attempts.error IS 'Why the attempt failed; shown to roles that may read the records in quarantine';
COMMENT ON COLUMN report.attempts.started_at IS 'When the attempt began';
COMMENT ON COLUMN report.attempts.finished_at IS 'When the attempt ended, or was overtaken';
COMMENT ON COLUMN report.attempts.duration IS 'How long the attempt took';
COMMENT ON COLUMN report.attempts.code IS 'Begin of the sha256 of the job file that ran';
COMMENT ON COLUMN report.attempts.error_code IS 'The code of the error, which `txbatch explain` explains; null for an attempt without an error, or of a version without codes';
COMMENT ON VIEW report.partitions IS 'One row per batch and partition of the source, such as a file: the records read, or why the partition could not be read.';
COMMENT ON COLUMN report.partitions.topology IS 'The pipeline';
COMMENT ON COLUMN report.partitions.stream IS 'The stream of the topology';
COMMENT ON COLUMN report.partitions.partition IS 'The partition or file; empty for a source without';
COMMENT ON COLUMN report.partitions.txid IS 'The batch';
COMMENT ON COLUMN report.partitions.status IS 'read; unreadable: left out, and read by a later batch; skipped: given up';
COMMENT ON COLUMN report.partitions.start_offset IS 'Where the batch began to read';
COMMENT ON COLUMN report.partitions.end_offset IS 'Where the batch stopped reading';
COMMENT ON COLUMN report.partitions.records IS 'Records read, as the reader counted them';
COMMENT ON COLUMN report.partitions.fingerprint IS 'Sum of the hashes of the records: equal for equal records';
COMMENT ON COLUMN report.partitions.reason IS 'Why the partition was not read';
COMMENT ON VIEW report.completeness IS 'How far each partition is counted, or each stream that is read by time.';
COMMENT ON COLUMN report.completeness.topology IS 'The pipeline';
COMMENT ON COLUMN report.completeness.stream IS 'The stream of the topology';
COMMENT ON COLUMN report.completeness.partition IS 'The partition or file; empty for a stream that is read by time';
COMMENT ON COLUMN report.completeness.consumed_to IS 'All before this offset is counted; by time: all from the first interval on up to this moment, without a gap';
COMMENT ON COLUMN report.completeness.current_to_txid IS 'The batch that came that far';
COMMENT ON COLUMN report.completeness.current_to IS 'When the batch current_to_txid was committed';
COMMENT ON COLUMN report.completeness.unreadable_since_txid IS 'The first batch that had to leave the partition out, if the partition still lacks records';
COMMENT ON COLUMN report.completeness.missing_since IS 'When a plan first lacked the partition in the list of the source; null: the partition is listed, or is not asked for';
COMMENT ON COLUMN report.completeness.lag IS 'How many offsets the source had after consumed_to when the batch current_to_txid was planned; null: the source does not tell';
COMMENT ON COLUMN report.completeness.kept_from IS 'The oldest offset that the source kept when the batch current_to_txid was planned; null: the source does not tell';
COMMENT ON VIEW report.gaps IS 'An interval between counted intervals that is not counted: no batch has the interval, or the batch is not committed.';
COMMENT ON COLUMN report.gaps.topology IS 'The pipeline';
COMMENT ON COLUMN report.gaps.gap_start IS 'Begin of the interval';
COMMENT ON COLUMN report.gaps.gap_end IS 'End of the interval, exclusive';
COMMENT ON COLUMN report.gaps.txid IS 'The batch of the interval, not committed; null: no batch has the interval';
COMMENT ON COLUMN report.gaps.status IS 'planned or emitted: how far that batch is';
COMMENT ON COLUMN report.gaps.attempt_status IS 'The status of the newest attempt of the batch';
COMMENT ON COLUMN report.gaps.run IS 'The run that works on the batch';
COMMENT ON COLUMN report.gaps.lease_live IS 'Whether that run has shown a sign of life lately';
COMMENT ON VIEW report.waiting IS 'Batches that wait for their turn, and runs that wait for a batch.';
COMMENT ON COLUMN report.waiting.topology IS 'The pipeline';
COMMENT ON COLUMN report.waiting.txid IS 'The batch that waits; null: the waiting run has no batch yet';
COMMENT ON COLUMN report.waiting.run IS 'The run that waits';
COMMENT ON COLUMN report.waiting.status IS 'emitted: the batch waits to be committed; waiting: the run waits for room';
COMMENT ON COLUMN report.waiting.waits_for_txid IS 'The batch that is waited for';
COMMENT ON COLUMN report.waiting.waits_for_run IS 'The run that works on that batch';
COMMENT ON COLUMN report.waiting.waits_for_status IS 'planned or emitted';
COMMENT ON COLUMN report.waiting.lease_live IS 'Whether that run has shown a sign of life lately; if not, the waiting run takes over';
COMMENT ON COLUMN report.waiting.since IS 'Since when';
COMMENT ON COLUMN report.waiting.waited IS 'How long';
COMMENT ON COLUMN report.waiting.lease_until IS 'How long that run is left alone without another sign of life; runs give a sign every few minutes at least';


-- Which of its topology's committed txids each state has counted. Those it missed were committed while it was left out of the
-- job, or before it joined it (R23).
-- By jumps from each series of txids to the next: a state is in all batches of the same states, or in none.
CREATE VIEW report.state_coverage AS
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

COMMENT ON VIEW report.state_coverage IS 'Committed txids of a topology that each state has counted, and committed txids that each state has missed.';
COMMENT ON COLUMN report.state_coverage.topology IS 'The topology of the state.';
COMMENT ON COLUMN report.state_coverage.state IS 'The state, reported as report.<state>.';
COMMENT ON COLUMN report.state_coverage.since_txid IS 'The first counted txid; null before the first.';
COMMENT ON COLUMN report.state_coverage.counts_to_txid IS 'The last counted txid.';
COMMENT ON COLUMN report.state_coverage.missed IS 'How many committed txids of the topology the state has not counted.';
COMMENT ON COLUMN report.state_coverage.missed_txids IS 'The missed txids, such as 1-3, 7.';


-- What people ask about corrections (R17, R19).
CREATE VIEW report.batch_reads AS
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

-- What a restate read, and the version before it, as it was then: batch.records is what the newest rebuild read.
CREATE VIEW report.restatements AS
SELECT r.topology, r.position, r.txid, o.txid AS replaced_txid, r.status, r.reason, r.requested_by, k.dag_id, k.run_id,
       r.lease_run AS run, r.created_at, r.committed_at,
       CASE WHEN o.records IS NOT NULL THEN (
           SELECT COALESCE(sum(p.records), 0)::bigint FROM txbatch.partition p
            WHERE (p.topology, p.txid) = (o.topology, o.txid)) END AS records_before,
       CASE WHEN r.records IS NOT NULL THEN (
           SELECT COALESCE(sum(p.records), 0)::bigint FROM txbatch.partition p
            WHERE (p.topology, p.txid) = (r.topology, r.txid)) END AS records,
       r.keys, r.replaced_by
  FROM txbatch.batch r
  LEFT JOIN txbatch.batch o ON o.topology = r.topology AND o.replaced_by = r.txid
  LEFT JOIN LATERAL (
       SELECT dag_id, run_id FROM txbatch.batch_key k
        WHERE k.topology = r.topology AND k.txid = r.txid
        ORDER BY key, ordinal LIMIT 1) k ON true
 WHERE r.kind = 'restate';

-- True, or an error where this snapshot is of before a swap: functions and tables are those of today, its rows are not (R19, R23).
CREATE FUNCTION report.of_one_generation(state text) RETURNS boolean
    LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    running bigint;
BEGIN
    -- The first is the table of today, whatever the snapshot is of; the second is that of the snapshot.
    IF to_regclass(format('state.%I', of_one_generation.state)) <> (
        SELECT c.oid FROM pg_class c WHERE c.relname = of_one_generation.state AND c.relnamespace = 'state'::regnamespace) THEN
        SELECT r.rebuild INTO running FROM txbatch.rebuild r JOIN txbatch.state s USING (topology)
         WHERE s.state = of_one_generation.state AND r.status = 'running';
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('TX708 (try again): state %L cannot be asked for its past here: the transaction began before %s; end it, and ask in a new one',
                             of_one_generation.state, COALESCE('rebuild ' || running || ' was swapped', 'its table became another'));
    END IF;
    RETURN true;
END
$$;

COMMENT ON FUNCTION report.of_one_generation(text) IS 'True. An error if the transaction began before the swap of a rebuild that has ended since.';

-- True, or an error that says why a state cannot be asked as of a txid.
CREATE FUNCTION report.known_at(state text, txid bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    of_topology text;
    horizon bigint;
    newest bigint;
    open_from bigint;
    swapped record;
    gone record;
BEGIN
    SELECT s.topology, s.horizon INTO of_topology, horizon FROM txbatch.state s WHERE s.state = known_at.state;
    open_from := (SELECT min(b.txid) FROM txbatch.batch b
                   WHERE b.topology = of_topology AND b.status IN ('planned', 'emitted'));
    newest := COALESCE((SELECT max(b.txid) FROM txbatch.batch b WHERE b.topology = of_topology AND b.status = 'committed'), 0);
    IF horizon IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format('TX401 (no retry helps): no state %L is known; SELECT state FROM report.state_coverage has them all', known_at.state);
    ELSIF known_at.txid BETWEEN open_from AND newest THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('TX709 (try again): state %L cannot be asked as of txid %s: txid %s is open, and what it counts would change the answer; ask %sonce txid %s is committed or aborted',
                             known_at.state, known_at.txid, open_from,
                             CASE WHEN horizon < open_from THEN format('for one of %s to %s, or ', horizon, open_from - 1) END, open_from);
    ELSIF known_at.txid IS NULL OR known_at.txid NOT BETWEEN 0 AND newest THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('TX701 (no retry helps): state %L cannot be asked as of txid %s: the newest committed one is %s; ask for one of %s to %s', known_at.state,
                             COALESCE(known_at.txid::text, 'null'), newest, horizon, LEAST(open_from - 1, newest));
    ELSIF known_at.txid < horizon THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('TX701 (no retry helps): state %L cannot be asked as of txid %s: retention has folded what it was before txid %s; ask for one of %s to %s',
                             known_at.state, known_at.txid, horizon, horizon, LEAST(open_from - 1, newest));
    END IF;
    PERFORM report.of_one_generation(known_at.state);
    SELECT r.* INTO swapped FROM txbatch.rebuild r JOIN txbatch.state s ON s.topology = r.topology
     WHERE s.state = known_at.state AND r.swapped_txid >= known_at.txid ORDER BY r.swapped_txid, r.rebuild LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('TX701 (no retry helps): state %L cannot be asked as of txid %s: rebuild %s counted all anew after txid %s, and has what is later; %s',
                             known_at.state, known_at.txid, swapped.rebuild, swapped.swapped_txid,
                             CASE WHEN swapped.dropped_at IS NULL
                                  THEN format('ask report_past_%s.%I(%s) for what was shown then', swapped.rebuild,
                                              'as_of_' || known_at.state, known_at.txid)
                                  ELSE 'what was shown then was dropped' END);
    END IF;
    SELECT l.* INTO gone FROM txbatch.windows_left l WHERE l.state = known_at.state AND l.txid > known_at.txid;
    IF FOUND THEN
        RAISE WARNING 'state % as of txid % is told without what retention has let go of since: windows that begin, or sessions that end, before %',
            quote_literal(known_at.state), known_at.txid, timestamptz 'epoch' + gone.left_before * interval '1 microsecond'
            USING HINT = 'SELECT * FROM report.windows_left has how many.';
    END IF;
    RETURN true;
END
$$;

COMMENT ON FUNCTION report.known_at(text, bigint) IS 'True. An error with the reason if the state cannot be asked as of the txid.';
COMMENT ON VIEW report.batch_reads IS 'One row per batch and partition or file that the batch read, and per live state that the batch looked up in.';
COMMENT ON COLUMN report.batch_reads.topology IS 'The pipeline';
COMMENT ON COLUMN report.batch_reads.txid IS 'The batch';
COMMENT ON COLUMN report.batch_reads.stream IS 'The stream of the topology; null for a looked-up state';
COMMENT ON COLUMN report.batch_reads.source IS 'The partition or file; or the looked-up state with the txid of the look-up';
COMMENT ON COLUMN report.batch_reads.start_offset IS 'Where the batch began to read; null for a file of a batch by time, which reads the records of the interval';
COMMENT ON COLUMN report.batch_reads.end_offset IS 'Where the batch stopped reading';
COMMENT ON VIEW report.restatements IS 'One row per restate: a batch that counts an earlier batch again, in the place of the earlier batch.';
COMMENT ON COLUMN report.restatements.topology IS 'The pipeline';
COMMENT ON COLUMN report.restatements.position IS 'The txid that was counted first';
COMMENT ON COLUMN report.restatements.txid IS 'The txid of the restate';
COMMENT ON COLUMN report.restatements.replaced_txid IS 'The txid that counted until then: the first, or a restate of the first; null until the restate is committed';
COMMENT ON COLUMN report.restatements.status IS 'planned: the records are fixed; emitted: Spark has read the records; committed: the restate counts, or did; aborted: the earlier batch goes on counting';
COMMENT ON COLUMN report.restatements.reason IS 'Why the restate was asked for; if aborted, why the restate was aborted';
COMMENT ON COLUMN report.restatements.requested_by IS 'The person who asked for the restate; null if nobody is named';
COMMENT ON COLUMN report.restatements.dag_id IS 'The DAG of the run that planned the restate; null outside Airflow';
COMMENT ON COLUMN report.restatements.run_id IS 'The run of that DAG';
COMMENT ON COLUMN report.restatements.run IS 'The run that works on the restate, or was the last to do so, also outside Airflow';
COMMENT ON COLUMN report.restatements.created_at IS 'When the restate was planned';
COMMENT ON COLUMN report.restatements.committed_at IS 'Since when the numbers of the restate count';
COMMENT ON COLUMN report.restatements.records_before IS 'Source records that the replaced batch had read when the replaced batch was counted';
COMMENT ON COLUMN report.restatements.records IS 'Source records that the restate read when the restate was counted; records read by a later rebuild are in report.batches';
COMMENT ON COLUMN report.restatements.keys IS 'Keys whose values the restate computed again, by state';
COMMENT ON COLUMN report.restatements.replaced_by IS 'A later restate of the same position, which counts now; null: this restate counts, once committed';

-- What of a definition was changed while it had history (R23).
CREATE TABLE txbatch.change (
    change       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topology     text COLLATE "C" NOT NULL REFERENCES txbatch.topology ON UPDATE CASCADE,
    txid         bigint NOT NULL,                     -- the first that counts by what was changed
    job          text NOT NULL,
    what         json NOT NULL,                       -- each change, and what became of it
    why          text NOT NULL,
    requested_by text,
    changed_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX change_topology ON txbatch.change (topology, change);

CREATE VIEW report.changes_of_definition AS
SELECT c.topology, c.change, c.txid, e ->> 'what' AS what, e ->> 'how' AS how, c.why, c.requested_by, c.changed_at, c.job
  FROM txbatch.change c, json_array_elements(c.what) e;

CREATE VIEW report.values_since AS
SELECT s.topology, s.state, e.key AS value, e.value::text::bigint AS since_txid
  FROM txbatch.state s, json_each(s.values_since) e;

COMMENT ON VIEW report.changes_of_definition IS 'Changes of a topology''s states, streams and values, made while the topology had history.';
COMMENT ON COLUMN report.changes_of_definition.topology IS 'The pipeline';
COMMENT ON COLUMN report.changes_of_definition.change IS 'The number of the change; rows with one number were changed together';
COMMENT ON COLUMN report.changes_of_definition.txid IS 'The first batch after the change';
COMMENT ON COLUMN report.changes_of_definition.what IS 'The difference since then';
COMMENT ON COLUMN report.changes_of_definition.how IS 'in place: older numbers are the same as by the new definition; from now on: older batches do not count for the change';
COMMENT ON COLUMN report.changes_of_definition.why IS 'The reason for the change';
COMMENT ON COLUMN report.changes_of_definition.requested_by IS 'The person who made the change';
COMMENT ON COLUMN report.changes_of_definition.changed_at IS 'When';
COMMENT ON COLUMN report.changes_of_definition.job IS 'The job file with the new definition';
COMMENT ON VIEW report.values_since IS 'A value that joined its state later. Rows without a change since then show null.';
COMMENT ON COLUMN report.values_since.topology IS 'The pipeline';
COMMENT ON COLUMN report.values_since.state IS 'The state, reported as report.<state>';
COMMENT ON COLUMN report.values_since.value IS 'The column of that report';
COMMENT ON COLUMN report.values_since.since_txid IS 'The first batch that counts for the value';
-- A topology's states may be counted anew beside those that count, and take their place (R23).
CREATE TABLE txbatch.rebuild (
    rebuild      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topology     text COLLATE "C" NOT NULL REFERENCES txbatch.topology ON UPDATE CASCADE,
    status       text NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'swapped')),
    why          text NOT NULL,
    requested_by text,
    job          text NOT NULL,
    code         text NOT NULL,                      -- sha256 of the job file
    definition   json NOT NULL,                      -- what its states are
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at     timestamptz,
    swapped_txid bigint,                             -- the newest committed txid when the new generation began to count
    past         json,                               -- what the states were that it replaced
    dropped_at   timestamptz,                        -- when these were dropped
    CHECK ((status = 'swapped') = (ended_at IS NOT NULL)),
    CHECK ((status = 'swapped') = (swapped_txid IS NOT NULL AND past IS NOT NULL)),
    CHECK (dropped_at IS NULL OR status = 'swapped')
);

CREATE UNIQUE INDEX rebuild_running ON txbatch.rebuild (topology) WHERE status = 'running';
CREATE INDEX rebuild_topology ON txbatch.rebuild (topology, rebuild);

-- The versions that a rebuild has counted, in the order of their txids.
CREATE TABLE txbatch.rebuilt (
    rebuild    bigint NOT NULL REFERENCES txbatch.rebuild ON DELETE CASCADE,
    txid       bigint NOT NULL,
    position   bigint NOT NULL,
    keys       json NOT NULL,                        -- keys changed, by state
    kept       json,                                 -- records that reached each state, by state
    records    bigint NOT NULL,
    counted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    counted_in xid8 NOT NULL DEFAULT pg_current_xact_id(),
    metadata   json,                                 -- what it read of the version; null: counted before it was kept
    streams    json,                                 -- records and fingerprints, by stream and partition
    late       json,                                 -- records that were late, by state (R25)
    PRIMARY KEY (rebuild, txid)
);

CREATE VIEW report.rebuilds AS
SELECT r.topology, r.rebuild, r.status, r.why, r.requested_by, r.job, r.started_at, r.ended_at, r.swapped_txid,
       d.counted, d.records,
       CASE WHEN r.status = 'running' THEN
            (SELECT count(*) FROM txbatch.batch b
              WHERE b.topology = r.topology AND b.status = 'committed' AND b.kind <> 'skip' AND b.replaced_by IS NULL
                AND b.txid > d.last_txid) END AS to_count,
       r.status = 'swapped' AND r.dropped_at IS NULL AS past_kept
  FROM txbatch.rebuild r CROSS JOIN LATERAL (
       -- A version that another one took the place of, whether that is counted or not, counts no more.
       SELECT count(*) FILTER (WHERE n.stands) AS counted,
              COALESCE(sum(n.records) FILTER (WHERE n.stands), 0)::bigint AS records, COALESCE(max(n.txid), 0) AS last_txid
         FROM (SELECT DISTINCT ON (v.position) v.txid, v.records, r.status = 'swapped' OR NOT EXISTS (
                      SELECT FROM txbatch.batch b
                       WHERE b.topology = r.topology AND b.txid = v.txid AND b.replaced_by IS NOT NULL) AS stands
                 FROM txbatch.rebuilt v WHERE v.rebuild = r.rebuild ORDER BY v.position, v.txid DESC) n) d;

COMMENT ON VIEW report.rebuilds IS 'A rebuild: all batches of a topology counted again by the job of that time, into a new generation of the states.';
COMMENT ON COLUMN report.rebuilds.topology IS 'The pipeline';
COMMENT ON COLUMN report.rebuilds.rebuild IS 'The number of the rebuild';
COMMENT ON COLUMN report.rebuilds.status IS 'running: the old generation counts; swapped: the new generation counts';
COMMENT ON COLUMN report.rebuilds.why IS 'Why the rebuild was asked for';
COMMENT ON COLUMN report.rebuilds.requested_by IS 'Who asked for the rebuild';
COMMENT ON COLUMN report.rebuilds.job IS 'The job file by which the rebuild counts';
COMMENT ON COLUMN report.rebuilds.started_at IS 'When the rebuild began';
COMMENT ON COLUMN report.rebuilds.ended_at IS 'When the new generation replaced the old generation';
COMMENT ON COLUMN report.rebuilds.swapped_txid IS 'The newest batch that the old generation has';
COMMENT ON COLUMN report.rebuilds.counted IS 'How many batches the rebuild has counted, each once, however often the batch was restated';
COMMENT ON COLUMN report.rebuilds.records IS 'Source records that the rebuild has counted';
COMMENT ON COLUMN report.rebuilds.to_count IS 'How many batches are still to be counted, or to be counted again after a restate; null once the rebuild is over';
COMMENT ON COLUMN report.rebuilds.past_kept IS 'Whether the replaced generation can still be asked for its past';

-- True, or an error that says why the generation of a state before a rebuild cannot be asked as of a txid.
CREATE FUNCTION report.known_before(rebuild bigint, state text, txid bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    first bigint;
    last bigint;
    gone json;
    why text;
BEGIN
    SELECT r.swapped_txid, GREATEST((r.past -> known_before.state ->> 'horizon')::bigint,
           (SELECT max(p.swapped_txid) + 1 FROM txbatch.rebuild p WHERE p.topology = r.topology AND p.rebuild < r.rebuild)),
           r.past -> known_before.state -> 'left'
      INTO last, first, gone FROM txbatch.rebuild r WHERE r.rebuild = known_before.rebuild;
    IF NOT EXISTS (SELECT FROM txbatch.rebuild r WHERE r.rebuild = known_before.rebuild AND r.swapped_txid IS NOT NULL
                      AND r.dropped_at IS NULL AND r.past -> known_before.state IS NOT NULL) THEN
        why := 'report.rebuilds has which were swapped, and whose past is kept';
    ELSIF first > last THEN
        why := 'no batch was committed between the rebuild before it and this one: no txid stands for what was shown then';
    ELSIF known_before.txid IS NULL OR known_before.txid NOT BETWEEN first AND last THEN
        why := format('ask for one of %s to %s', first, last);
    END IF;
    IF why IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('TX701 (no retry helps): state %L before rebuild %s cannot be asked as of txid %s: %s', COALESCE(known_before.state, 'null'),
                             COALESCE(known_before.rebuild::text, 'null'), COALESCE(known_before.txid::text, 'null'), why);
    END IF;
    IF (gone ->> 'txid')::bigint > known_before.txid THEN
        RAISE WARNING 'state % before rebuild % as of txid % is told without what retention had let go of: windows that begin, or sessions that end, before %',
            quote_literal(known_before.state), rebuild, known_before.txid,
            timestamptz 'epoch' + (gone ->> 'before')::bigint * interval '1 microsecond';
    END IF;
    RETURN true;
END
$$;

COMMENT ON FUNCTION report.known_before(bigint, text, bigint) IS 'True. An error with the reason if the generation of a state before a rebuild cannot be asked as of a txid.';

-- Whether so much of a state changed after one txid, up to another or to the newest, that its past is told sooner by one pass over
-- all its contributions than by a search for each key that changed. An estimate, and only of time: both ways tell the same.
-- What later batches changed is read off the first hundred of them; rows are counted as the planner does.
CREATE FUNCTION report.far_back(state text, low bigint, high bigint DEFAULT NULL) RETURNS boolean
    LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asked text := COALESCE(NULLIF(current_setting('txbatch.far_back', true), ''), 'auto');
    counted_by text;
    last bigint;
    changed double precision;
    rows double precision;
    contributed double precision;
BEGIN
    IF asked IN ('on', 'off') THEN
        RETURN asked = 'on';
    ELSIF asked <> 'auto' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format('TX806 (no retry helps): txbatch.far_back is %L', asked),
            HINT = 'Set it to on, off or auto.';
    END IF;
    counted_by := (SELECT s.topology FROM txbatch.state s WHERE s.state = far_back.state);
    last := COALESCE(high, (SELECT max(b.txid) FROM txbatch.batch b WHERE b.topology = counted_by));
    changed := (SELECT sum(f.keys) FROM (
                    SELECT (b.keys ->> far_back.state)::bigint AS keys FROM txbatch.batch b
                     WHERE b.topology = counted_by AND b.txid > low AND b.txid <= last AND b.status = 'committed'
                     ORDER BY b.txid LIMIT 100) f) * GREATEST(last - low, 100) / 100;
    IF changed > 0 THEN
        SELECT sum(n) FILTER (WHERE counts), sum(n) FILTER (WHERE NOT counts) INTO rows, contributed
          FROM (SELECT r.counts, pg_relation_size(c.oid) * COALESCE(c.reltuples / NULLIF(c.relpages, 0) / 8192, 0.01) AS n
                  FROM (SELECT true AS counts, to_regclass(format('state.%I', far_back.state)) AS relation
                         UNION ALL
                        SELECT false, t.relid FROM pg_partition_tree(to_regclass(format('contribution.%I', far_back.state))) t
                         WHERE t.isleaf) r
                  JOIN pg_class c ON c.oid = r.relation) sizes;
        -- A search is 20 times the work of folding a row in the pass, and each row that it finds 3 times.
        contributed := GREATEST(contributed - changed, 0);
        RETURN changed * (20 * rows + 3 * contributed) > GREATEST(rows, changed) * (2 * rows + contributed);
    END IF;
    RETURN false;
END
$$;

-- The same of the generation of a state before a rebuild, up to what was committed when that was swapped.
CREATE FUNCTION report.far_before(rebuild bigint, state text, low bigint) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$ SELECT report.far_back(state, low, (SELECT r.swapped_txid FROM txbatch.rebuild r WHERE r.rebuild = far_before.rebuild)) $$;

COMMENT ON FUNCTION report.far_back(text, bigint, bigint) IS 'True if a large share of a state changed between two txids, so that the past is computed in one pass; SET txbatch.far_back = on or off decides instead.';
COMMENT ON FUNCTION report.far_before(bigint, text, bigint) IS 'As report.far_back, for the generation of a state before a rebuild.';

-- An error that says how the past of a state is asked which merges by Python of its job.
CREATE FUNCTION report.by_its_job(state text) RETURNS boolean
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
        MESSAGE = format('TX703 (no retry helps): state %L merges values by Python of its job, which SQL cannot run: what it was is told with that alone', state),
        HINT = format('Ask `txbatch as-of %s TXID` in the project''s folder, or Reports.as_of in Python; report.%I has what each batch contributed.',
                      state, state || '_changes');
END
$$;

COMMENT ON FUNCTION report.by_its_job(text) IS 'An error that names the command for the past of a state with values merged by Python of the job.';

-- What each topology keeps of its past, and what it has left (R22).
CREATE VIEW report.retention AS
SELECT t.topology, (t.keep ->> 'txids')::bigint AS keep_txids, (t.keep ->> 'days')::double precision AS keep_days, s.horizon,
       h.committed_at AS horizon_at,
       (SELECT count(*) FROM txbatch.batch b
         WHERE b.topology = t.topology AND b.status = 'committed' AND b.txid > s.horizon) AS batches_kept
  FROM txbatch.topology t
  LEFT JOIN (SELECT topology, min(horizon) AS horizon FROM txbatch.state WHERE contributions GROUP BY topology) s USING (topology)
  LEFT JOIN txbatch.batch h ON (h.topology, h.txid) = (t.topology, s.horizon);

COMMENT ON VIEW report.retention IS 'How far the past of a topology is kept. Folded batches have no history any more, and cannot be restated.';
COMMENT ON COLUMN report.retention.topology IS 'The pipeline';
COMMENT ON COLUMN report.retention.keep_txids IS 'Policy: the number of newest batches to keep';
COMMENT ON COLUMN report.retention.keep_days IS 'Policy: batches committed in the last keep_days days are kept; null with null keep_txids: everything, for ever';
COMMENT ON COLUMN report.retention.horizon IS 'The newest folded batch; 0: no batch is folded; null: the topology keeps no contributions';
COMMENT ON COLUMN report.retention.horizon_at IS 'When the batch horizon was committed';
COMMENT ON COLUMN report.retention.batches_kept IS 'How many committed batches can be asked for and restated';

-- How long windows stay in states, and which have left them (R30).
CREATE VIEW report.windows_left AS
SELECT s.topology, state, (p.kept ->> 'keep')::bigint * interval '1 microsecond' AS keep,
       COALESCE(l.kept, p.kept) -> 'window' ->> 'gap' IS NOT NULL AS sessions,
       timestamptz 'epoch' + l.left_before * interval '1 microsecond' AS left_before,
       COALESCE(l.windows, 0) AS windows, l.records, l.txid, l.left_at, l.kept
  FROM (SELECT w.key AS state, w.value AS kept
          FROM txbatch.topology t CROSS JOIN LATERAL json_each(t.keep -> 'windows') w) p
  FULL JOIN txbatch.windows_left l USING (state)
  JOIN txbatch.state s USING (state);

COMMENT ON VIEW report.windows_left IS 'A state with windows that have left: up to which time, and how many. Reports of an earlier txid lack these windows.';
COMMENT ON COLUMN report.windows_left.topology IS 'The pipeline';
COMMENT ON COLUMN report.windows_left.state IS 'The state';
COMMENT ON COLUMN report.windows_left.keep IS 'Policy: how long windows stay after their end; null: for ever, by now';
COMMENT ON COLUMN report.windows_left.sessions IS 'True: the windows are sessions';
COMMENT ON COLUMN report.windows_left.left_before IS 'All windows that begin before this time have left, and all sessions with a last record before this time; null: none has left';
COMMENT ON COLUMN report.windows_left.windows IS 'How many rows of the report have left';
COMMENT ON COLUMN report.windows_left.records IS 'How many records the left windows were made of; null where no value counts records';
COMMENT ON COLUMN report.windows_left.txid IS 'The newest committed txid when the last window left';
COMMENT ON COLUMN report.windows_left.left_at IS 'When the last window left';
COMMENT ON COLUMN report.windows_left.kept IS 'How windows were cut, and kept, when the last window left; null: none has left';

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
       (SELECT count(*) FROM report.gaps g WHERE g.topology = t.topology) AS gaps,
       (SELECT count(*) FROM txbatch.behind l LEFT JOIN txbatch.consumed c USING (topology, stream, partition)
         WHERE l.topology = t.topology AND EXISTS (
               SELECT FROM txbatch.partition u
                WHERE (u.topology, u.stream, u.partition) = (l.topology, l.stream, l.partition)
                  AND u.status = 'unreadable' AND u.txid > COALESCE(c.txid, 0) AND NOT EXISTS (
                      SELECT FROM txbatch.batch r WHERE (r.topology, r.txid, r.kind) = (u.topology, u.txid, 'restate')))) AS left_out
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
COMMENT ON COLUMN report.topologies.left_out IS 'How many partitions a batch could not read and left out, and no batch has read since';
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

-- What merges and folds the arrays that aggregates keep (TopN, CollectSet, ApproxQuantile), and what reports show of them:
-- merge and fold are one text. In `report`, as its functions call them with the rights of whoever asks.

CREATE OR REPLACE FUNCTION report.merge_top(kept anyarray, more anyarray, size integer) RETURNS anyarray
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN more IS NULL THEN kept
                 ELSE ARRAY(SELECT x FROM unnest(kept || more) x ORDER BY x DESC LIMIT size) END $$;
CREATE OR REPLACE AGGREGATE report.fold_top(anyarray, integer)
    (SFUNC = report.merge_top, STYPE = anyarray, PARALLEL = SAFE);

CREATE OR REPLACE FUNCTION report.merge_smallest(kept anyarray, more anyarray, size integer) RETURNS anyarray
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN more IS NULL OR more[1] >= kept[size] THEN kept
                 ELSE ARRAY(SELECT DISTINCT x FROM unnest(kept || more) x ORDER BY x LIMIT size) END $$;
CREATE OR REPLACE AGGREGATE report.fold_smallest(anyarray, integer)
    (SFUNC = report.merge_smallest, STYPE = anyarray, PARALLEL = SAFE);

CREATE OR REPLACE FUNCTION report.merge_bins(kept bigint[], more bigint[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN more IS NULL THEN kept WHEN kept IS NULL THEN more
                 ELSE ARRAY(SELECT unnest(ARRAY[b.bin, b.number])
                              FROM (SELECT a.bins[i] AS bin, sum(a.bins[i + 1])::bigint AS number
                                      FROM (SELECT kept || more AS bins OFFSET 0) a, generate_series(1, cardinality(a.bins), 2) i
                                     GROUP BY 1 ORDER BY 1) b) END $$;
CREATE OR REPLACE AGGREGATE report.fold_bins(bigint[])
    (SFUNC = report.merge_bins, STYPE = bigint[], PARALLEL = SAFE);

CREATE OR REPLACE FUNCTION report.quantile(bins bigint[], quantile double precision, error double precision)
    RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN b.bin = 0 THEN 0 WHEN b.bin > 4611686018427387904 THEN 'NaN'
                      WHEN abs(b.bin) = 4611686018427387904 THEN sign(b.bin) * 'Infinity'::double precision
                      ELSE sign(b.bin) * exp(LEAST(GREATEST((abs(b.bin) - 1099511627776) * ln((1 + error) / (1 - error))
                                                            + ln(1 - error), -744.4), 709.78)) END
            FROM (SELECT bins[i] AS bin, sum(bins[i + 1]) OVER (ORDER BY i) AS upto, sum(bins[i + 1]) OVER () AS total
                    FROM generate_series(1, cardinality(bins), 2) i) b
           WHERE b.upto::double precision >= quantile * b.total::double precision
           ORDER BY b.upto LIMIT 1 $$;

COMMENT ON FUNCTION report.merge_top(anyarray, anyarray, integer) IS 'TopN: the greatest values of two arrays, greatest first';
COMMENT ON AGGREGATE report.fold_top(anyarray, integer) IS 'TopN: the greatest values of the arrays of many rows, greatest first';
COMMENT ON FUNCTION report.merge_smallest(anyarray, anyarray, integer) IS 'CollectSet: the smallest different values of two arrays';
COMMENT ON AGGREGATE report.fold_smallest(anyarray, integer) IS 'CollectSet: the smallest different values of the arrays of many rows';
COMMENT ON FUNCTION report.merge_bins(bigint[], bigint[]) IS 'ApproxQuantile: bins of two arrays, each bin with its count behind';
COMMENT ON AGGREGATE report.fold_bins(bigint[]) IS 'ApproxQuantile: bins of the arrays of many rows';
COMMENT ON FUNCTION report.quantile(bigint[], double precision, double precision) IS 'ApproxQuantile: the middle of the bin in which a quantile lies; null for no values';

-- Set operations over what DistinctSketch shows: hashes in order, and behind them the number below which none was left out,
-- 2^60 where none was at all. Null is a sketch of nothing.

CREATE OR REPLACE FUNCTION report.distinct_count(sketch bigint[]) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT COALESCE(div((cardinality(sketch) - 1) * 1152921504606846976::numeric, sketch[cardinality(sketch)])::bigint, 0) $$;

CREATE OR REPLACE FUNCTION report.distinct_union(one bigint[], other bigint[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN other IS NULL THEN one WHEN one IS NULL THEN other
                 ELSE ARRAY(SELECT DISTINCT x FROM unnest(one || other) x
                             WHERE x <= LEAST(one[cardinality(one)], other[cardinality(other)]) ORDER BY x LIMIT 16384) END $$;

CREATE OR REPLACE AGGREGATE report.distinct_union(bigint[])
    (SFUNC = report.distinct_union, STYPE = bigint[], PARALLEL = SAFE);

CREATE OR REPLACE FUNCTION report.distinct_intersection(one bigint[], other bigint[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT ARRAY(SELECT x FROM (SELECT unnest(one) INTERSECT SELECT unnest(other)) i (x)
                        WHERE x < LEAST(one[cardinality(one)], other[cardinality(other)]) ORDER BY x)
                 || LEAST(one[cardinality(one)], other[cardinality(other)], 1152921504606846976) $$;

CREATE OR REPLACE FUNCTION report.distinct_difference(one bigint[], other bigint[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT ARRAY(SELECT x FROM (SELECT unnest(one) EXCEPT SELECT unnest(other)) d (x)
                        WHERE x < LEAST(one[cardinality(one)], other[cardinality(other)]) ORDER BY x)
                 || LEAST(one[cardinality(one)], other[cardinality(other)], 1152921504606846976) $$;

COMMENT ON FUNCTION report.distinct_count(bigint[]) IS 'DistinctSketch: the number of different values; 0 for no values';
COMMENT ON FUNCTION report.distinct_union(bigint[], bigint[]) IS 'DistinctSketch: the sketch of values in either sketch';
COMMENT ON AGGREGATE report.distinct_union(bigint[]) IS 'DistinctSketch: the sketch of values in any of the sketches of many rows';
COMMENT ON FUNCTION report.distinct_intersection(bigint[], bigint[]) IS 'DistinctSketch: the sketch of values in both sketches';
COMMENT ON FUNCTION report.distinct_difference(bigint[], bigint[]) IS 'DistinctSketch: the sketch of values in the first sketch and not in the second';

-- What reports show of the rows that TopNBy keeps: each is its fields as texts in the order of the values, chr(1) between two, so
-- that the greatest are found as those of any text; the first character says what a value is, null is empty.

CREATE OR REPLACE FUNCTION report.ordered_number(ordered text) RETURNS numeric
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN left(ordered, 1) = '1' THEN substr(ordered, 4)::numeric
                 ELSE -rtrim(translate(substr(ordered, 4), '0123456789', '9876543210'), '~')::numeric END $$;

CREATE OR REPLACE FUNCTION report.ordered_double(ordered text) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN b.bits > 9218868437227405312 THEN 'NaN'
                      WHEN b.bits = 9218868437227405312 THEN b.sign * 'Infinity'::double precision
                      ELSE b.sign * ((b.bits & 4503599627370495) + CASE WHEN b.bits >> 52 > 0 THEN 4503599627370496 ELSE 0 END)
                                  * power(2::double precision, b.exponent / 2)
                                  * power(2::double precision, b.exponent - b.exponent / 2) END
            FROM (SELECT a.sign, a.bits, (GREATEST(a.bits >> 52, 1) - 1075)::integer AS exponent
                    FROM (SELECT CASE WHEN left(ordered, 1) = '1' THEN 1 ELSE -1 END AS sign,
                                 ('x' || CASE WHEN left(ordered, 1) = '1' THEN substr(ordered, 2)
                                              ELSE translate(substr(ordered, 2), '0123456789abcdef', 'fedcba9876543210')
                                         END)::bit(64)::bigint AS bits) a) b $$;

CREATE OR REPLACE FUNCTION report.ordered_value(ordered text) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE left(ordered, 1)
                 WHEN 'n' THEN to_jsonb(report.ordered_number(substr(ordered, 2)))
                 WHEN 's' THEN to_jsonb(replace(replace(substr(ordered, 2), chr(2) || chr(3), chr(1)), chr(2) || chr(4), chr(2)))
                 WHEN 'f' THEN to_jsonb(report.ordered_double(substr(ordered, 2)))
                 WHEN 'b' THEN to_jsonb(substr(ordered, 2) = '1')
                 WHEN 'x' THEN to_jsonb(chr(92) || ordered)
                 WHEN 'd' THEN to_jsonb(to_char((date '1970-01-01' + report.ordered_number(substr(ordered, 2))::integer)::timestamp,
                                                'YYYY-MM-DD'))
                 WHEN 't' THEN (SELECT to_jsonb(to_char(timestamp '1970-01-01'
                                                        + div(t.micros, 86400000000)::double precision * interval '1 day'
                                                        + mod(t.micros, 86400000000)::double precision * interval '1 microsecond',
                                                        'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'))
                                  FROM (SELECT report.ordered_number(substr(ordered, 2)) AS micros) t) END $$;

CREATE OR REPLACE FUNCTION report.top_rows(texts text[], fields text[]) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT jsonb_agg((SELECT jsonb_object_agg(f.name, report.ordered_value(f.ordered))
                              FROM unnest(fields, string_to_array(r.ordered, chr(1))) f (name, ordered)
                             WHERE f.name IS NOT NULL) ORDER BY r.place)
            FROM unnest(texts) WITH ORDINALITY r (ordered, place) $$;

COMMENT ON FUNCTION report.ordered_number(text) IS 'TopNBy: the number that a text in the order of numbers stands for';
COMMENT ON FUNCTION report.ordered_double(text) IS 'TopNBy: the double that a text in the order of doubles stands for';
COMMENT ON FUNCTION report.ordered_value(text) IS 'TopNBy: the value that a text in the order of its type stands for; null for the empty text';
COMMENT ON FUNCTION report.top_rows(text[], text[]) IS 'TopNBy: rows as objects of the named fields, greatest first; fields named null are left out';
