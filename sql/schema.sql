-- The desired database: what `txbatch migrate` arrives at. A test proves that migrations/ end here.
-- State tables (state.*), contributions (contribution.*) and their report views are made per topology by the library.

CREATE SCHEMA IF NOT EXISTS txbatch;
CREATE SCHEMA IF NOT EXISTS state;
CREATE SCHEMA contribution;
CREATE SCHEMA contribution_partition;
CREATE SCHEMA IF NOT EXISTS report;

COMMENT ON SCHEMA txbatch IS 'The ledger: topologies, batches, attempts, partitions. Written by txbatch only.';
COMMENT ON SCHEMA state IS 'One table per state: keys, values, txid. Written by txbatch only.';
COMMENT ON SCHEMA contribution IS 'What each batch contributed to each key: state is the fold of these.';
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
    created_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE txbatch.state (
    state         text COLLATE "C" PRIMARY KEY,
    topology      text COLLATE "C" NOT NULL REFERENCES txbatch.topology,
    kind          text NOT NULL CHECK (kind IN ('non_transactional', 'transactional', 'opaque')),
    contributions boolean NOT NULL,
    columns       json NOT NULL,                     -- keys and values with their types
    database      text,                              -- the other database it is kept in, apart (R21)
    applied_txid  bigint,                            -- apart: the last txid committed there
    CHECK (database IS NULL OR NOT contributions),
    CHECK (applied_txid IS NULL OR database IS NOT NULL)
);

-- planned -> emitted -> committed; planned or emitted -> aborted. A re-emission goes emitted -> planned.
CREATE TABLE txbatch.batch (
    topology        text COLLATE "C" NOT NULL REFERENCES txbatch.topology,
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
    PRIMARY KEY (topology, txid),
    CHECK (kind = 'restate' OR position = txid),
    CHECK ((status = 'committed') = (committed_at IS NOT NULL)),
    CHECK ((status = 'committed' AND kind <> 'skip') = (committed_fence IS NOT NULL)),
    CHECK (committed_fence = fence),
    CHECK ((status = 'aborted') = (aborted_at IS NOT NULL)),
    CHECK (status <> 'aborted' OR reason IS NOT NULL),
    CHECK (status NOT IN ('emitted', 'committed') OR kind = 'skip' OR fence > 0),
    CHECK ((fence = 0) = (token IS NULL)),
    CHECK (succeeded_at IS NULL OR status = 'committed'),
    CHECK (data_interval IS NULL
        OR (NOT isempty(data_interval) AND lower_inc(data_interval) AND NOT upper_inc(data_interval)))
);

CREATE INDEX batch_open ON txbatch.batch (topology, txid) WHERE status IN ('planned', 'emitted');
CREATE INDEX batch_ordinary ON txbatch.batch (topology, txid) WHERE status <> 'aborted' AND kind <> 'restate';
CREATE INDEX batch_interval ON txbatch.batch (topology, lower(data_interval))
    WHERE data_interval IS NOT NULL AND status <> 'aborted' AND kind <> 'restate';

-- A run finds its batch here; several runs may share one (adoption), and a run gets the next ordinal after an abort.
CREATE TABLE txbatch.batch_key (
    topology text COLLATE "C" NOT NULL,
    key      text COLLATE "C" NOT NULL,
    ordinal  integer NOT NULL CHECK (ordinal >= 1),
    txid     bigint NOT NULL,
    dag_id   text,
    run_id   text,
    PRIMARY KEY (topology, key, ordinal),
    FOREIGN KEY (topology, txid) REFERENCES txbatch.batch
);

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
    FOREIGN KEY (topology, txid) REFERENCES txbatch.batch,
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
    FOREIGN KEY (topology, txid) REFERENCES txbatch.batch,
    CHECK ((status = 'read') = (records IS NOT NULL AND fingerprint IS NOT NULL))
);

-- Where each partition's next batch starts.
CREATE TABLE txbatch.consumed (
    topology  text COLLATE "C" NOT NULL REFERENCES txbatch.topology,
    stream    text COLLATE "C" NOT NULL,
    partition text COLLATE "C" NOT NULL,
    txid      bigint NOT NULL,
    metadata  json NOT NULL,                         -- the last committed range
    PRIMARY KEY (topology, stream, partition)
) WITH (fillfactor = 85);

-- Runs that have no batch yet, for as many as allowed are in flight (R6); the view report.waiting shows those that still wait.
CREATE TABLE txbatch.waiting (
    topology text COLLATE "C" NOT NULL REFERENCES txbatch.topology,
    run      text COLLATE "C" NOT NULL,
    txid     bigint NOT NULL,                        -- it waits for the end of this one
    since    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (topology, run)
);

CREATE VIEW report.batches AS
SELECT b.topology, b.txid, b.kind, b.status,
       b.status = 'committed' AND NOT EXISTS (
           SELECT FROM txbatch.batch o
            WHERE o.topology = b.topology AND o.txid < b.txid AND o.status IN ('planned', 'emitted')) AS final,
       lower(b.data_interval) AS interval_start, upper(b.data_interval) AS interval_end,
       b.fence AS attempts, b.records, b.keys, k.dag_id, k.run_id,
       b.created_at, b.committed_at, b.committed_at - b.created_at AS duration, b.reason
  FROM txbatch.batch b
  LEFT JOIN LATERAL (
       SELECT dag_id, run_id FROM txbatch.batch_key k
        WHERE k.topology = b.topology AND k.txid = b.txid ORDER BY key, ordinal LIMIT 1) k ON true;

CREATE VIEW report.attempts AS
SELECT a.topology, a.txid, a.attempt_id, a.txid || ':' || a.attempt_id AS attempt, a.status, a.run, a.error,
       a.started_at, a.finished_at, a.finished_at - a.started_at AS duration, left(a.code, 12) AS code
  FROM txbatch.attempt a;

CREATE VIEW report.partitions AS
SELECT topology, stream, partition, txid, status, metadata ->> 'start' AS start_offset, metadata ->> 'end' AS end_offset,
       records, fingerprint, reason
  FROM txbatch.partition;

-- Intervals that lie between batches and belong to none (R2).
CREATE VIEW report.gaps AS
SELECT topology, covered_to AS gap_start, lower(data_interval) AS gap_end
  FROM (SELECT topology, data_interval,
               lag(upper(data_interval)) OVER (PARTITION BY topology ORDER BY data_interval) AS covered_to
          FROM txbatch.batch
         WHERE data_interval IS NOT NULL AND status <> 'aborted' AND kind <> 'restate') i
 WHERE covered_to < lower(data_interval);

-- Who waits for whom, and since when: batches for their turn, and runs for a txid. `lease_live` is that of the one waited for.
CREATE VIEW report.waiting AS
SELECT w.topology, w.txid, w.run, w.status, h.txid AS waits_for_txid, h.lease_run AS waits_for_run,
       h.status AS waits_for_status, h.lease_until > clock_timestamp() AS lease_live,
       w.since, clock_timestamp() - w.since AS waited
  FROM (SELECT b.topology, b.txid, b.lease_run AS run, b.status, a.finished_at AS since,
               (SELECT min(o.txid) FROM txbatch.batch o
                 WHERE o.topology = b.topology AND o.txid < b.txid AND o.status IN ('planned', 'emitted')) AS waits_for
          FROM txbatch.batch b
          JOIN txbatch.attempt a ON (a.topology, a.txid, a.attempt_id) = (b.topology, b.txid, b.fence)
         WHERE b.status = 'emitted'
         UNION ALL
        SELECT topology, NULL, run, 'waiting', since, txid FROM txbatch.waiting) w
  JOIN txbatch.batch h ON (h.topology, h.txid) = (w.topology, w.waits_for) AND h.status IN ('planned', 'emitted');

CREATE VIEW report.completeness AS
SELECT p.topology, p.stream, p.partition, c.metadata ->> 'end' AS consumed_to, c.txid AS current_to_txid,
       b.committed_at AS current_to, h.txid AS unreadable_since_txid
  FROM (SELECT topology, stream, partition FROM txbatch.consumed
         UNION
        SELECT topology, stream, partition FROM txbatch.partition WHERE status = 'unreadable') p
  LEFT JOIN txbatch.consumed c USING (topology, stream, partition)
  LEFT JOIN txbatch.batch b ON b.topology = c.topology AND b.txid = c.txid
  LEFT JOIN LATERAL (
       SELECT min(u.txid) AS txid FROM txbatch.partition u
        WHERE u.topology = p.topology AND u.stream = p.stream AND u.partition = p.partition
          AND u.status = 'unreadable' AND u.txid > COALESCE(c.txid, 0)) h ON true;
