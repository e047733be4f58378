SELECT pg_catalog.set_config('search_path', '', false);
CREATE SCHEMA contribution;
CREATE SCHEMA contribution_partition;
CREATE SCHEMA report;
CREATE SCHEMA state;
CREATE SCHEMA txbatch;
CREATE TABLE contribution.days_days (
    word text NOT NULL COLLATE pg_catalog."C",
    "position" bigint NOT NULL,
    txid bigint NOT NULL,
    count bigint
)
PARTITION BY RANGE (txid);
CREATE TABLE contribution.lists_long (
    word text NOT NULL COLLATE pg_catalog."C",
    "position" bigint NOT NULL,
    txid bigint NOT NULL,
    count bigint
)
PARTITION BY RANGE (txid);
CREATE TABLE contribution.lists_short (
    word text NOT NULL COLLATE pg_catalog."C",
    "position" bigint NOT NULL,
    txid bigint NOT NULL,
    count bigint
)
PARTITION BY RANGE (txid);
CREATE TABLE contribution.log_log (
    word text NOT NULL COLLATE pg_catalog."C",
    "position" bigint NOT NULL,
    txid bigint NOT NULL,
    count bigint
)
PARTITION BY RANGE (txid);
CREATE TABLE contribution_partition."days_days@1" (
    word text CONSTRAINT days_days_word_not_null NOT NULL COLLATE pg_catalog."C",
    "position" bigint CONSTRAINT days_days_position_not_null NOT NULL,
    txid bigint CONSTRAINT days_days_txid_not_null NOT NULL,
    count bigint,
    CONSTRAINT "days_days@1_txid_check" CHECK (((txid >= 1) AND (txid < 1001)))
);
CREATE TABLE contribution_partition."lists_long@1" (
    word text CONSTRAINT lists_long_word_not_null NOT NULL COLLATE pg_catalog."C",
    "position" bigint CONSTRAINT lists_long_position_not_null NOT NULL,
    txid bigint CONSTRAINT lists_long_txid_not_null NOT NULL,
    count bigint,
    CONSTRAINT "lists_long@1_txid_check" CHECK (((txid >= 1) AND (txid < 1001)))
);
CREATE TABLE contribution_partition."lists_short@1" (
    word text CONSTRAINT lists_short_word_not_null NOT NULL COLLATE pg_catalog."C",
    "position" bigint CONSTRAINT lists_short_position_not_null NOT NULL,
    txid bigint CONSTRAINT lists_short_txid_not_null NOT NULL,
    count bigint,
    CONSTRAINT "lists_short@1_txid_check" CHECK (((txid >= 1) AND (txid < 1001)))
);
CREATE TABLE contribution_partition."log_log@1" (
    word text CONSTRAINT log_log_word_not_null NOT NULL COLLATE pg_catalog."C",
    "position" bigint CONSTRAINT log_log_position_not_null NOT NULL,
    txid bigint CONSTRAINT log_log_txid_not_null NOT NULL,
    count bigint,
    CONSTRAINT "log_log@1_txid_check" CHECK (((txid >= 1) AND (txid < 1001)))
);
CREATE TABLE txbatch.attempt (
    topology text NOT NULL COLLATE pg_catalog."C",
    txid bigint NOT NULL,
    attempt_id integer NOT NULL,
    token text NOT NULL,
    status text DEFAULT 'emitting'::text NOT NULL,
    run text NOT NULL,
    code text NOT NULL,
    manifest json,
    error text,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    CONSTRAINT attempt_attempt_id_check CHECK ((attempt_id >= 1)),
    CONSTRAINT attempt_check CHECK (((status = ANY (ARRAY['emitted'::text, 'committed'::text])) <= (manifest IS NOT NULL))),
    CONSTRAINT attempt_check1 CHECK (((status = 'failed'::text) = (error IS NOT NULL))),
    CONSTRAINT attempt_status_check CHECK ((status = ANY (ARRAY['emitting'::text, 'emitted'::text, 'failed'::text, 'superseded'::text, 'committed'::text])))
);
CREATE VIEW report.attempts AS
 SELECT topology,
    txid,
    attempt_id,
    ((txid || ':'::text) || attempt_id) AS attempt,
    status,
    run,
    error,
    started_at,
    finished_at,
    (finished_at - started_at) AS duration,
    "left"(code, 12) AS code
   FROM txbatch.attempt a;
CREATE TABLE txbatch.batch (
    topology text NOT NULL COLLATE pg_catalog."C",
    txid bigint NOT NULL,
    "position" bigint NOT NULL,
    kind text DEFAULT 'ordinary'::text NOT NULL,
    status text DEFAULT 'planned'::text NOT NULL,
    key text NOT NULL,
    data_interval tstzrange,
    metadata json NOT NULL,
    prev_txid bigint,
    fence integer DEFAULT 0 NOT NULL,
    token text,
    lease_run text,
    lease_until timestamp with time zone NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    committed_at timestamp with time zone,
    committed_fence integer,
    records bigint,
    keys json,
    succeeded_at timestamp with time zone,
    aborted_at timestamp with time zone,
    reason text,
    CONSTRAINT batch_check CHECK ((("position" >= 1) AND ("position" <= txid))),
    CONSTRAINT batch_check1 CHECK (((kind = 'restate'::text) OR ("position" = txid))),
    CONSTRAINT batch_check2 CHECK (((status = 'committed'::text) = (committed_at IS NOT NULL))),
    CONSTRAINT batch_check3 CHECK ((((status = 'committed'::text) AND (kind <> 'skip'::text)) = (committed_fence IS NOT NULL))),
    CONSTRAINT batch_check4 CHECK ((committed_fence = fence)),
    CONSTRAINT batch_check5 CHECK (((status = 'aborted'::text) = (aborted_at IS NOT NULL))),
    CONSTRAINT batch_check6 CHECK (((status <> 'aborted'::text) OR (reason IS NOT NULL))),
    CONSTRAINT batch_check7 CHECK (((status <> ALL (ARRAY['emitted'::text, 'committed'::text])) OR (kind = 'skip'::text) OR (fence > 0))),
    CONSTRAINT batch_check8 CHECK (((fence = 0) = (token IS NULL))),
    CONSTRAINT batch_check9 CHECK (((succeeded_at IS NULL) OR (status = 'committed'::text))),
    CONSTRAINT batch_data_interval_check CHECK (((data_interval IS NULL) OR ((NOT isempty(data_interval)) AND lower_inc(data_interval) AND (NOT upper_inc(data_interval))))),
    CONSTRAINT batch_fence_check CHECK ((fence >= 0)),
    CONSTRAINT batch_kind_check CHECK ((kind = ANY (ARRAY['ordinary'::text, 'restate'::text, 'skip'::text]))),
    CONSTRAINT batch_status_check CHECK ((status = ANY (ARRAY['planned'::text, 'emitted'::text, 'committed'::text, 'aborted'::text]))),
    CONSTRAINT batch_txid_check CHECK ((txid >= 1))
);
CREATE TABLE txbatch.batch_key (
    topology text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    ordinal integer NOT NULL,
    txid bigint NOT NULL,
    dag_id text,
    run_id text,
    CONSTRAINT batch_key_ordinal_check CHECK ((ordinal >= 1))
);
CREATE VIEW report.batches AS
 SELECT b.topology,
    b.txid,
    b.kind,
    b.status,
    ((b.status = 'committed'::text) AND (NOT (EXISTS ( SELECT
           FROM txbatch.batch o
          WHERE ((o.topology = b.topology) AND (o.txid < b.txid) AND (o.status = ANY (ARRAY['planned'::text, 'emitted'::text]))))))) AS final,
    lower(b.data_interval) AS interval_start,
    upper(b.data_interval) AS interval_end,
    b.fence AS attempts,
    b.records,
    b.keys,
    k.dag_id,
    k.run_id,
    b.created_at,
    b.committed_at,
    (b.committed_at - b.created_at) AS duration,
    b.reason
   FROM (txbatch.batch b
     LEFT JOIN LATERAL ( SELECT k_1.dag_id,
            k_1.run_id
           FROM txbatch.batch_key k_1
          WHERE ((k_1.topology = b.topology) AND (k_1.txid = b.txid))
          ORDER BY k_1.key, k_1.ordinal
         LIMIT 1) k ON (true));
CREATE TABLE txbatch.consumed (
    topology text NOT NULL COLLATE pg_catalog."C",
    stream text NOT NULL COLLATE pg_catalog."C",
    partition text NOT NULL COLLATE pg_catalog."C",
    txid bigint NOT NULL,
    metadata json NOT NULL
)
WITH (fillfactor='85');
CREATE TABLE txbatch.partition (
    topology text NOT NULL COLLATE pg_catalog."C",
    stream text NOT NULL COLLATE pg_catalog."C",
    partition text NOT NULL COLLATE pg_catalog."C",
    txid bigint NOT NULL,
    status text NOT NULL,
    metadata json NOT NULL,
    records bigint,
    fingerprint numeric(38,0),
    reason text,
    CONSTRAINT partition_check CHECK (((status = 'read'::text) = ((records IS NOT NULL) AND (fingerprint IS NOT NULL)))),
    CONSTRAINT partition_status_check CHECK ((status = ANY (ARRAY['read'::text, 'unreadable'::text, 'skipped'::text])))
);
CREATE VIEW report.completeness AS
 SELECT p.topology,
    p.stream,
    p.partition,
    (c.metadata ->> 'end'::text) AS consumed_to,
    c.txid AS current_to_txid,
    b.committed_at AS current_to,
    h.txid AS unreadable_since_txid
   FROM (((( SELECT consumed.topology,
            consumed.stream,
            consumed.partition
           FROM txbatch.consumed
        UNION
         SELECT partition.topology,
            partition.stream,
            partition.partition
           FROM txbatch.partition
          WHERE (partition.status = 'unreadable'::text)) p
     LEFT JOIN txbatch.consumed c USING (topology, stream, partition))
     LEFT JOIN txbatch.batch b ON (((b.topology = c.topology) AND (b.txid = c.txid))))
     LEFT JOIN LATERAL ( SELECT min(u.txid) AS txid
           FROM txbatch.partition u
          WHERE ((u.topology = p.topology) AND (u.stream = p.stream) AND (u.partition = p.partition) AND (u.status = 'unreadable'::text) AND (u.txid > COALESCE(c.txid, (0)::bigint)))) h ON (true));
CREATE TABLE state.days_days (
    word text NOT NULL COLLATE pg_catalog."C",
    count bigint,
    prev_count bigint,
    prev_txid bigint,
    txid bigint NOT NULL
)
WITH (fillfactor='85', autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');
CREATE VIEW report.days_days AS
 SELECT word,
    count,
    txid
   FROM state.days_days;
CREATE VIEW report.gaps AS
 SELECT topology,
    covered_to AS gap_start,
    lower(data_interval) AS gap_end
   FROM ( SELECT batch.topology,
            batch.data_interval,
            lag(upper(batch.data_interval)) OVER (PARTITION BY batch.topology ORDER BY batch.data_interval) AS covered_to
           FROM txbatch.batch
          WHERE ((batch.data_interval IS NOT NULL) AND (batch.status <> 'aborted'::text) AND (batch.kind <> 'restate'::text))) i
  WHERE (covered_to < lower(data_interval));
CREATE TABLE state.lists_long (
    word text NOT NULL COLLATE pg_catalog."C",
    count bigint,
    prev_count bigint,
    prev_txid bigint,
    txid bigint NOT NULL
)
WITH (fillfactor='85', autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');
CREATE VIEW report.lists_long AS
 SELECT word,
    count,
    txid
   FROM state.lists_long;
CREATE TABLE state.lists_short (
    word text NOT NULL COLLATE pg_catalog."C",
    count bigint,
    prev_count bigint,
    prev_txid bigint,
    txid bigint NOT NULL
)
WITH (fillfactor='85', autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');
CREATE VIEW report.lists_short AS
 SELECT word,
    count,
    txid
   FROM state.lists_short;
CREATE TABLE state.log_log (
    word text NOT NULL COLLATE pg_catalog."C",
    count bigint,
    prev_count bigint,
    prev_txid bigint,
    txid bigint NOT NULL
)
WITH (fillfactor='85', autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');
CREATE VIEW report.log_log AS
 SELECT word,
    count,
    txid
   FROM state.log_log;
CREATE VIEW report.partitions AS
 SELECT topology,
    stream,
    partition,
    txid,
    status,
    (metadata ->> 'start'::text) AS start_offset,
    (metadata ->> 'end'::text) AS end_offset,
    records,
    fingerprint,
    reason
   FROM txbatch.partition;
CREATE TABLE txbatch.waiting (
    topology text NOT NULL COLLATE pg_catalog."C",
    run text NOT NULL COLLATE pg_catalog."C",
    txid bigint NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
CREATE VIEW report.waiting AS
 SELECT w.topology,
    w.txid,
    w.run,
    w.status,
    h.txid AS waits_for_txid,
    h.lease_run AS waits_for_run,
    h.status AS waits_for_status,
    (h.lease_until > clock_timestamp()) AS lease_live,
    w.since,
    (clock_timestamp() - w.since) AS waited
   FROM (( SELECT b.topology,
            b.txid,
            b.lease_run AS run,
            b.status,
            a.finished_at AS since,
            ( SELECT min(o.txid) AS min
                   FROM txbatch.batch o
                  WHERE ((o.topology = b.topology) AND (o.txid < b.txid) AND (o.status = ANY (ARRAY['planned'::text, 'emitted'::text])))) AS waits_for
           FROM (txbatch.batch b
             JOIN txbatch.attempt a ON (((a.topology = b.topology) AND (a.txid = b.txid) AND (a.attempt_id = b.fence))))
          WHERE (b.status = 'emitted'::text)
        UNION ALL
         SELECT waiting.topology,
            NULL::bigint,
            waiting.run,
            'waiting'::text,
            waiting.since,
            waiting.txid
           FROM txbatch.waiting) w
     JOIN txbatch.batch h ON ((((h.topology = w.topology) AND (h.txid = w.waits_for)) AND (h.status = ANY (ARRAY['planned'::text, 'emitted'::text])))));
CREATE TABLE txbatch.ledger (
    single boolean DEFAULT true NOT NULL,
    uuid uuid DEFAULT gen_random_uuid() NOT NULL,
    CONSTRAINT ledger_single_check CHECK (single)
);
CREATE TABLE txbatch.migration (
    number integer NOT NULL,
    name text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE txbatch.state (
    state text NOT NULL COLLATE pg_catalog."C",
    topology text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL,
    contributions boolean NOT NULL,
    columns json NOT NULL,
    database text,
    applied_txid bigint,
    CONSTRAINT state_check CHECK (((database IS NULL) OR (NOT contributions))),
    CONSTRAINT state_check1 CHECK (((applied_txid IS NULL) OR (database IS NOT NULL))),
    CONSTRAINT state_kind_check CHECK ((kind = ANY (ARRAY['non_transactional'::text, 'transactional'::text, 'opaque'::text])))
);
CREATE TABLE txbatch.topology (
    topology text NOT NULL COLLATE pg_catalog."C",
    job text NOT NULL,
    by_interval boolean NOT NULL,
    source json,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);
ALTER TABLE ONLY contribution.days_days ATTACH PARTITION contribution_partition."days_days@1" FOR VALUES FROM ('1') TO ('1001');
ALTER TABLE ONLY contribution.lists_long ATTACH PARTITION contribution_partition."lists_long@1" FOR VALUES FROM ('1') TO ('1001');
ALTER TABLE ONLY contribution.lists_short ATTACH PARTITION contribution_partition."lists_short@1" FOR VALUES FROM ('1') TO ('1001');
ALTER TABLE ONLY contribution.log_log ATTACH PARTITION contribution_partition."log_log@1" FOR VALUES FROM ('1') TO ('1001');
INSERT INTO contribution_partition."days_days@1" VALUES ('dog', 1, 1, 1);
INSERT INTO contribution_partition."lists_long@1" VALUES ('dog', 1, 1, 1);
INSERT INTO contribution_partition."lists_short@1" VALUES ('dog', 1, 1, 1);
INSERT INTO contribution_partition."log_log@1" VALUES ('dog', 1, 1, 1);
INSERT INTO state.days_days VALUES ('dog', 1, NULL, NULL, 1);
INSERT INTO state.lists_long VALUES ('dog', 1, NULL, NULL, 1);
INSERT INTO state.lists_short VALUES ('dog', 1, NULL, NULL, 1);
INSERT INTO state.log_log VALUES ('dog', 1, NULL, NULL, 1);
INSERT INTO txbatch.attempt VALUES ('log', 2, 1, '07f6de59-3791-449e-86cf-e3b6ee817a11', 'emitted', '2', '5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b', '{"attempt":{"attempt_id":1,"txid":2},"code":"5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b","format":1,"metadata_digest":"3f4d3e2a0e05b2aa400520166f3b07035fecf47e48d5d03ecdaf64524518da62","states":{"log_log":{"files":[],"rows":1,"totals":{"count":"1"}}},"streams":{"log":{"a":{"fingerprint":"10020","records":10},"b":{"fingerprint":"10015","records":5}}},"token":"07f6de59-3791-449e-86cf-e3b6ee817a11","topology":"log","unreadable":{}}', NULL, '2026-11-22 14:34:20.569279+00', '2026-11-22 14:34:20.586039+00');
INSERT INTO txbatch.attempt VALUES ('log', 1, 1, '98f88f1f-82c8-4668-8d8d-fa1c39f46bae', 'committed', '1', '5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b', '{"attempt":{"attempt_id":1,"txid":1},"code":"5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b","format":1,"metadata_digest":"bc86d35b36973a3e00b451011a90f36f2ef9c9594785fdd7ae5035a51b0a5377","states":{"log_log":{"files":[],"rows":1,"totals":{"count":"1"}}},"streams":{"log":{"a":{"fingerprint":"10","records":10},"b":{"fingerprint":"10","records":10}}},"token":"98f88f1f-82c8-4668-8d8d-fa1c39f46bae","topology":"log","unreadable":{}}', NULL, '2026-11-22 14:34:20.513813+00', '2026-11-22 14:34:20.527825+00');
INSERT INTO txbatch.attempt VALUES ('lists', 2, 1, '11a7ffd5-38cf-4a75-a509-f6fc01978410', 'emitted', '2', '5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b', '{"attempt":{"attempt_id":1,"txid":2},"code":"5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b","format":1,"metadata_digest":"883ee5a74229b95f864e1431d5ea4ade839ae6a7d837d5135d0162875b89a070","states":{"lists_long":{"files":[],"rows":1,"totals":{"count":"1"}},"lists_short":{"files":[],"rows":1,"totals":{"count":"1"}}},"streams":{"long":{"":{"fingerprint":"5010","records":5}}},"token":"11a7ffd5-38cf-4a75-a509-f6fc01978410","topology":"lists","unreadable":{}}', NULL, '2026-11-22 14:34:21.660254+00', '2026-11-22 14:34:21.668971+00');
INSERT INTO txbatch.attempt VALUES ('lists', 1, 1, '88d7ef24-0740-48bc-889a-4c38bce3a6c2', 'committed', '1', '5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b', '{"attempt":{"attempt_id":1,"txid":1},"code":"5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b","format":1,"metadata_digest":"0e4ea00eaebdb70a24343afb68985c1f75f27a7161b16e2145258c274f6a4710","states":{"lists_long":{"files":[],"rows":1,"totals":{"count":"1"}},"lists_short":{"files":[],"rows":1,"totals":{"count":"1"}}},"streams":{"long":{"":{"fingerprint":"5","records":5}},"short":{"":{"fingerprint":"5","records":5}}},"token":"88d7ef24-0740-48bc-889a-4c38bce3a6c2","topology":"lists","unreadable":{}}', NULL, '2026-11-22 14:34:21.579009+00', '2026-11-22 14:34:21.600934+00');
INSERT INTO txbatch.attempt VALUES ('days', 2, 1, 'caa3baad-9927-4cbd-a280-82a2104bd324', 'emitted', 'day 2', '5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b', '{"attempt":{"attempt_id":1,"txid":2},"code":"5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b","format":1,"metadata_digest":"e58857a761bfa3ddb3a9b5204c3fbaf93d01315ca2a0a5fc70ceb9bb0566fa3e","states":{"days_days":{"files":[],"rows":1,"totals":{"count":"1"}}},"streams":{"days":{"":{"fingerprint":"7","records":7}}},"token":"caa3baad-9927-4cbd-a280-82a2104bd324","topology":"days","unreadable":{}}', NULL, '2026-11-22 14:34:21.75714+00', '2026-11-22 14:34:21.762226+00');
INSERT INTO txbatch.attempt VALUES ('days', 1, 1, '3013a569-8d49-4e10-ba17-2181fbae66c5', 'committed', 'day 1', '5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b', '{"attempt":{"attempt_id":1,"txid":1},"code":"5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b","format":1,"metadata_digest":"10260c6c89513563c1c548024c2454dc3de6ce4891cf9e4d4b32bd58261436ab","states":{"days_days":{"files":[],"rows":1,"totals":{"count":"1"}}},"streams":{"days":{"":{"fingerprint":"7","records":7}}},"token":"3013a569-8d49-4e10-ba17-2181fbae66c5","topology":"days","unreadable":{}}', NULL, '2026-11-22 14:34:21.737555+00', '2026-11-22 14:34:21.743083+00');
INSERT INTO txbatch.attempt VALUES ('log', 3, 1, 'a1fedbcd-5550-42d6-a033-414e07cfe9d3', 'emitting', '3', '5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b', NULL, NULL, '2026-11-22 14:34:21.825536+00', NULL);
INSERT INTO txbatch.batch VALUES ('log', 2, 2, 'ordinary', 'emitted', 'run:2', NULL, '{"format":1,"streams":{"log":{"continues":["a","b"],"partitions":{"a":{"end":20,"start":10},"b":{"end":15,"start":10}},"unreadable":{"away":"away is down"}}}}', 1, 1, '07f6de59-3791-449e-86cf-e3b6ee817a11', '2', '2026-11-22 14:36:20.586254+00', '2026-11-22 14:34:20.553358+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO txbatch.batch VALUES ('log', 1, 1, 'ordinary', 'committed', 'run:1', NULL, '{"format":1,"streams":{"log":{"partitions":{"a":{"end":10,"start":0},"b":{"end":10,"start":0}},"unreadable":{"away":"away is down"}}}}', NULL, 1, '98f88f1f-82c8-4668-8d8d-fa1c39f46bae', '1', '2026-11-22 14:36:20.538968+00', '2026-11-22 14:34:20.487075+00', '2026-11-22 14:34:21.528115+00', 1, 20, '{"log_log":1}', NULL, NULL, NULL);
INSERT INTO txbatch.batch VALUES ('lists', 2, 2, 'ordinary', 'emitted', 'run:2', NULL, '{"format":1,"idle":{"short":{"end":5,"number":0,"start":0}},"streams":{"long":{"end":10,"number":1,"start":5}}}', 1, 1, '11a7ffd5-38cf-4a75-a509-f6fc01978410', '2', '2026-11-22 14:36:21.669149+00', '2026-11-22 14:34:21.639984+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO txbatch.batch VALUES ('lists', 1, 1, 'ordinary', 'committed', 'run:1', NULL, '{"format":1,"streams":{"long":{"end":5,"number":0,"start":0},"short":{"end":5,"number":0,"start":0}}}', NULL, 1, '88d7ef24-0740-48bc-889a-4c38bce3a6c2', '1', '2026-11-22 14:36:21.601508+00', '2026-11-22 14:34:21.564156+00', '2026-11-22 14:34:21.715708+00', 1, 10, '{"lists_long":1,"lists_short":1}', NULL, NULL, NULL);
INSERT INTO txbatch.batch VALUES ('days', 2, 2, 'ordinary', 'emitted', 'interval:2013-01-02T00:00:00+00:00/2013-01-03T00:00:00+00:00', '["2013-01-02 00:00:00+00","2013-01-03 00:00:00+00")', '{"format":1,"parameters":{"top":3},"streams":{"days":{"end":7,"files":{"a.csv":7},"interval":["2013-01-02T00:00:00+00:00","2013-01-03T00:00:00+00:00"],"parameters":{"top":3},"start":0}}}', 1, 1, 'caa3baad-9927-4cbd-a280-82a2104bd324', 'day 2', '2026-11-22 14:36:21.762425+00', '2026-11-22 14:34:21.749361+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO txbatch.batch VALUES ('days', 1, 1, 'ordinary', 'committed', 'interval:2013-01-01T00:00:00+00:00/2013-01-02T00:00:00+00:00', '["2013-01-01 00:00:00+00","2013-01-02 00:00:00+00")', '{"format":1,"parameters":{"top":3},"streams":{"days":{"end":7,"files":{"a.csv":7},"interval":["2013-01-01T00:00:00+00:00","2013-01-02T00:00:00+00:00"],"parameters":{"top":3},"start":0}}}', NULL, 1, '3013a569-8d49-4e10-ba17-2181fbae66c5', 'day 1', '2026-11-22 14:36:21.743253+00', '2026-11-22 14:34:21.728671+00', '2026-11-22 14:34:21.7881+00', 1, 7, '{"days_days":1}', NULL, NULL, NULL);
INSERT INTO txbatch.batch VALUES ('log', 4, 4, 'ordinary', 'planned', 'run:4', NULL, '{"format":1,"streams":{"log":{"partitions":{"cut":{"end":7,"gone":"kept for a week","start":0}},"unreadable":{"away":"away is down"}}}}', 3, 0, NULL, '4', '2026-11-22 14:36:21.821749+00', '2026-11-22 14:34:21.818766+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO txbatch.batch VALUES ('log', 3, 3, 'ordinary', 'planned', 'run:3', NULL, '{"format":1,"streams":{"log":{"continues":["a"],"partitions":{"a":{"end":25,"start":20}},"unreadable":{"away":"away is down"}}}}', 2, 1, 'a1fedbcd-5550-42d6-a033-414e07cfe9d3', '3', '2026-11-22 14:36:21.826184+00', '2026-11-22 14:34:21.805924+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO txbatch.batch_key VALUES ('log', 'run:1', 1, 1, NULL, '1');
INSERT INTO txbatch.batch_key VALUES ('log', 'run:2', 1, 2, NULL, '2');
INSERT INTO txbatch.batch_key VALUES ('lists', 'run:1', 1, 1, NULL, '1');
INSERT INTO txbatch.batch_key VALUES ('lists', 'run:2', 1, 2, NULL, '2');
INSERT INTO txbatch.batch_key VALUES ('days', 'interval:2013-01-01T00:00:00+00:00/2013-01-02T00:00:00+00:00', 1, 1, NULL, NULL);
INSERT INTO txbatch.batch_key VALUES ('days', 'interval:2013-01-02T00:00:00+00:00/2013-01-03T00:00:00+00:00', 1, 2, NULL, NULL);
INSERT INTO txbatch.batch_key VALUES ('log', 'run:3', 1, 3, NULL, '3');
INSERT INTO txbatch.batch_key VALUES ('log', 'run:4', 1, 4, NULL, '4');
INSERT INTO txbatch.consumed VALUES ('log', 'log', 'a', 1, '{"end":10,"start":0}');
INSERT INTO txbatch.consumed VALUES ('log', 'log', 'b', 1, '{"end":10,"start":0}');
INSERT INTO txbatch.ledger VALUES (true, '2f59776b-142c-464a-b60b-f672e40d446a');
INSERT INTO txbatch.migration VALUES (1, 'ledger', '2026-11-22 14:34:20.233798+00');
INSERT INTO txbatch.partition VALUES ('log', 'log', 'away', 1, 'unreadable', '{}', NULL, NULL, NULL);
INSERT INTO txbatch.partition VALUES ('log', 'log', 'a', 1, 'read', '{"end":10,"start":0}', 10, 10, NULL);
INSERT INTO txbatch.partition VALUES ('log', 'log', 'b', 1, 'read', '{"end":10,"start":0}', 10, 10, NULL);
INSERT INTO txbatch.partition VALUES ('lists', 'long', '', 1, 'read', '{"end":5,"number":0,"start":0}', 5, 5, NULL);
INSERT INTO txbatch.partition VALUES ('lists', 'short', '', 1, 'read', '{"end":5,"number":0,"start":0}', 5, 5, NULL);
INSERT INTO txbatch.partition VALUES ('days', 'days', '', 1, 'read', '{"end":7,"files":{"a.csv":7},"interval":["2013-01-01T00:00:00+00:00","2013-01-02T00:00:00+00:00"],"parameters":{"top":3},"start":0}', 7, 7, NULL);
INSERT INTO txbatch.state VALUES ('log_log', 'log', 'opaque', true, '{"keys":[["word","string"]],"values":[["count","bigint","add"]]}', NULL, NULL);
INSERT INTO txbatch.state VALUES ('lists_long', 'lists', 'opaque', true, '{"keys":[["word","string"]],"values":[["count","bigint","add"]]}', NULL, NULL);
INSERT INTO txbatch.state VALUES ('lists_short', 'lists', 'opaque', true, '{"keys":[["word","string"]],"values":[["count","bigint","add"]]}', NULL, NULL);
INSERT INTO txbatch.state VALUES ('days_days', 'days', 'opaque', true, '{"keys":[["word","string"]],"values":[["count","bigint","add"]]}', NULL, NULL);
INSERT INTO txbatch.topology VALUES ('log', 'jobs/job.py', false, '{"log":{"kind":"opaque","spout":"LogSpout"}}', '2026-11-22 14:34:20.336036+00');
INSERT INTO txbatch.topology VALUES ('lists', 'jobs/job.py', false, '{"long":{"kind":"transactional","spout":"ListSpout"},"short":{"kind":"transactional","spout":"ListSpout"}}', '2026-11-22 14:34:20.379492+00');
INSERT INTO txbatch.topology VALUES ('days', 'jobs/job.py', true, '{"days":{"kind":"transactional","spout":"ListSpout"}}', '2026-11-22 14:34:20.427201+00');
ALTER TABLE ONLY contribution.days_days
    ADD CONSTRAINT days_days_pkey PRIMARY KEY (word, "position", txid);
ALTER TABLE ONLY contribution.lists_long
    ADD CONSTRAINT lists_long_pkey PRIMARY KEY (word, "position", txid);
ALTER TABLE ONLY contribution.lists_short
    ADD CONSTRAINT lists_short_pkey PRIMARY KEY (word, "position", txid);
ALTER TABLE ONLY contribution.log_log
    ADD CONSTRAINT log_log_pkey PRIMARY KEY (word, "position", txid);
ALTER TABLE ONLY contribution_partition."days_days@1"
    ADD CONSTRAINT "days_days@1_pkey" PRIMARY KEY (word, "position", txid);
ALTER TABLE ONLY contribution_partition."lists_long@1"
    ADD CONSTRAINT "lists_long@1_pkey" PRIMARY KEY (word, "position", txid);
ALTER TABLE ONLY contribution_partition."lists_short@1"
    ADD CONSTRAINT "lists_short@1_pkey" PRIMARY KEY (word, "position", txid);
ALTER TABLE ONLY contribution_partition."log_log@1"
    ADD CONSTRAINT "log_log@1_pkey" PRIMARY KEY (word, "position", txid);
ALTER TABLE ONLY state.days_days
    ADD CONSTRAINT days_days_pkey PRIMARY KEY (word);
ALTER TABLE ONLY state.lists_long
    ADD CONSTRAINT lists_long_pkey PRIMARY KEY (word);
ALTER TABLE ONLY state.lists_short
    ADD CONSTRAINT lists_short_pkey PRIMARY KEY (word);
ALTER TABLE ONLY state.log_log
    ADD CONSTRAINT log_log_pkey PRIMARY KEY (word);
ALTER TABLE ONLY txbatch.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (topology, txid, attempt_id);
ALTER TABLE ONLY txbatch.attempt
    ADD CONSTRAINT attempt_token_key UNIQUE (token);
ALTER TABLE ONLY txbatch.batch_key
    ADD CONSTRAINT batch_key_pkey PRIMARY KEY (topology, key, ordinal);
ALTER TABLE ONLY txbatch.batch
    ADD CONSTRAINT batch_pkey PRIMARY KEY (topology, txid);
ALTER TABLE ONLY txbatch.consumed
    ADD CONSTRAINT consumed_pkey PRIMARY KEY (topology, stream, partition);
ALTER TABLE ONLY txbatch.ledger
    ADD CONSTRAINT ledger_pkey PRIMARY KEY (single);
ALTER TABLE ONLY txbatch.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (number);
ALTER TABLE ONLY txbatch.partition
    ADD CONSTRAINT partition_pkey PRIMARY KEY (topology, stream, partition, txid);
ALTER TABLE ONLY txbatch.state
    ADD CONSTRAINT state_pkey PRIMARY KEY (state);
ALTER TABLE ONLY txbatch.topology
    ADD CONSTRAINT topology_pkey PRIMARY KEY (topology);
ALTER TABLE ONLY txbatch.waiting
    ADD CONSTRAINT waiting_pkey PRIMARY KEY (topology, run);
CREATE INDEX batch_interval ON txbatch.batch USING btree (topology, lower(data_interval)) WHERE ((data_interval IS NOT NULL) AND (status <> 'aborted'::text) AND (kind <> 'restate'::text));
CREATE INDEX batch_open ON txbatch.batch USING btree (topology, txid) WHERE (status = ANY (ARRAY['planned'::text, 'emitted'::text]));
CREATE INDEX batch_ordinary ON txbatch.batch USING btree (topology, txid) WHERE ((status <> 'aborted'::text) AND (kind <> 'restate'::text));
ALTER INDEX contribution.days_days_pkey ATTACH PARTITION contribution_partition."days_days@1_pkey";
ALTER INDEX contribution.lists_long_pkey ATTACH PARTITION contribution_partition."lists_long@1_pkey";
ALTER INDEX contribution.lists_short_pkey ATTACH PARTITION contribution_partition."lists_short@1_pkey";
ALTER INDEX contribution.log_log_pkey ATTACH PARTITION contribution_partition."log_log@1_pkey";
ALTER TABLE ONLY txbatch.attempt
    ADD CONSTRAINT attempt_topology_txid_fkey FOREIGN KEY (topology, txid) REFERENCES txbatch.batch(topology, txid);
ALTER TABLE ONLY txbatch.batch_key
    ADD CONSTRAINT batch_key_topology_txid_fkey FOREIGN KEY (topology, txid) REFERENCES txbatch.batch(topology, txid);
ALTER TABLE ONLY txbatch.batch
    ADD CONSTRAINT batch_topology_fkey FOREIGN KEY (topology) REFERENCES txbatch.topology(topology);
ALTER TABLE ONLY txbatch.consumed
    ADD CONSTRAINT consumed_topology_fkey FOREIGN KEY (topology) REFERENCES txbatch.topology(topology);
ALTER TABLE ONLY txbatch.partition
    ADD CONSTRAINT partition_topology_txid_fkey FOREIGN KEY (topology, txid) REFERENCES txbatch.batch(topology, txid);
ALTER TABLE ONLY txbatch.state
    ADD CONSTRAINT state_topology_fkey FOREIGN KEY (topology) REFERENCES txbatch.topology(topology);
ALTER TABLE ONLY txbatch.waiting
    ADD CONSTRAINT waiting_topology_fkey FOREIGN KEY (topology) REFERENCES txbatch.topology(topology);
