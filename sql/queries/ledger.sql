-- Named statements of the ledger. A block begins with its name between dashes and one line that says what it is for.
-- Parameters are :named and bound; only the clock of PostgreSQL decides anything.

-- insert_topology --
-- Make a topology known; an existing one is left alone.
INSERT INTO txbatch.topology (topology, job, by_interval) VALUES (:topology, :job, :by_interval)
    ON CONFLICT (topology) DO NOTHING;

-- lock_topology --
-- The topology's row, locked: the first lock of every plan. Not against foreign keys: a commit, which holds the batch's
-- row, makes rows that refer to the topology, and would wait for whoever waits for that batch.
SELECT topology, job, by_interval, source, digest FROM txbatch.topology WHERE topology = :topology FOR NO KEY UPDATE;

-- share_topology --
-- The first lock of every commit, which keeps out the swap of a rebuild and no plan (R23); and what others see of this session
-- in pg_stat_activity, until the transaction ends.
SELECT set_config('application_name', :name, true) FROM txbatch.topology WHERE topology = :topology FOR KEY SHARE;

-- topology --
-- The same, without a lock.
SELECT topology, job, by_interval, source FROM txbatch.topology WHERE topology = :topology;

-- update_topology --
-- Keep the definition; its source is checked against the stored one first, once there is a txid.
UPDATE txbatch.topology
   SET job = :job, by_interval = :by_interval, source = CAST(:source AS json), streams = CAST(:streams AS json),
       keep = CAST(:keep AS json), watermarks = CAST(:watermarks AS json), digest = :digest
 WHERE topology = :topology
   AND (job, by_interval, source::text, streams::text, keep::text, watermarks::text, digest)
       IS DISTINCT FROM (:job, :by_interval, CAST(:source AS text), CAST(:streams AS text), CAST(:keep AS text),
                         CAST(:watermarks AS text), CAST(:digest AS text));

-- note_zone --
-- The zone in which a topology's schedule cuts intervals.
UPDATE txbatch.topology SET zone = :zone WHERE topology = :topology AND zone IS DISTINCT FROM :zone;

-- definition --
-- What is known of a topology's definition, null if it is not known; how far its history goes, which states its newest committed
-- txid counted, and its states, with whoever has the names that it gives them.
SELECT t.job, t.by_interval, t.source, t.streams, t.watermarks, c.txid AS committed_txid, c.counted,
       (SELECT max(txid) FROM txbatch.batch b
         WHERE b.topology = t.topology AND status <> 'aborted') AS txid,
       EXISTS (SELECT FROM txbatch.batch b WHERE b.topology = t.topology) AS planned,
       EXISTS (SELECT FROM txbatch.batch b WHERE b.topology = t.topology AND status = 'committed') AS any_committed,
       EXISTS (SELECT FROM txbatch.batch b
                WHERE b.topology = t.topology AND status = 'committed' AND kind <> 'skip') AS any_read,
       (SELECT json_agg(s) FROM txbatch.state s WHERE topology = :topology OR state = ANY (:states)) AS states
  FROM (VALUES (:topology)) asked (topology)
  LEFT JOIN txbatch.topology t USING (topology)
  LEFT JOIN LATERAL (
       SELECT txid, ARRAY(SELECT json_object_keys(keys)) AS counted FROM txbatch.batch b
        WHERE b.topology = t.topology AND status = 'committed' AND kind <> 'restate' AND keys IS NOT NULL
        ORDER BY txid DESC LIMIT 1) c ON true;

-- had_other_name --
-- Whether a topology has no states yet, and one of the name that it had has history (R23).
SELECT EXISTS (SELECT FROM txbatch.batch WHERE topology = :was)
   AND NOT EXISTS (SELECT FROM txbatch.state WHERE topology = :topology);

-- oldest_past --
-- The oldest rebuild of a topology whose replaced generation is still there; null: none.
SELECT min(rebuild) FROM txbatch.rebuild WHERE topology = :topology AND status = 'swapped' AND dropped_at IS NULL;

-- rename_topology --
-- A topology has another name, and so has all that refers to it.
WITH running AS (UPDATE txbatch.running SET topology = :topology WHERE topology = :was)
UPDATE txbatch.topology SET topology = :topology WHERE topology = :was;

-- rename_stream_of_partitions --
-- A stream has another name in what batches have read of it.
UPDATE txbatch.partition SET stream = :stream WHERE topology = :topology AND stream = :was;

-- rename_stream_of_consumed --
-- A stream goes on under another name.
UPDATE txbatch.consumed SET stream = :stream WHERE topology = :topology AND stream = :was;

-- rename_stream_of_states --
-- A stream has another name in what states count.
UPDATE txbatch.state SET streams =
       (SELECT json_agg(CASE WHEN s = :was THEN :stream ELSE s END ORDER BY CASE WHEN s = :was THEN :stream ELSE s END COLLATE "C")
          FROM json_array_elements_text(streams) s)
 WHERE topology = :topology AND streams IS NOT NULL;

-- rename_stream_of_behind --
-- A stream has another name where it is behind.
UPDATE txbatch.behind SET stream = :stream WHERE topology = :topology AND stream = :was;

-- rename_stream_of_watermarks --
-- A stream has another name where it says how far its event time is.
UPDATE txbatch.batch
   SET watermark = (SELECT json_object_agg(CASE key WHEN :was THEN :stream ELSE key END, value ORDER BY key COLLATE "C")
                      FROM json_each(watermark))
 WHERE topology = :topology AND watermark -> CAST(:was AS text) IS NOT NULL;

-- rename_stream_of_windows_left --
-- A stream has another name where it says which windows have left a state.
UPDATE txbatch.windows_left l
   SET kept = jsonb_set(CAST(l.kept AS jsonb), '{streams}',
                        (SELECT jsonb_object_agg(CASE key WHEN :was THEN :stream ELSE key END, value)
                           FROM jsonb_each(CAST(l.kept AS jsonb) -> 'streams')))
  FROM txbatch.state s
 WHERE s.state = l.state AND s.topology = :topology;

-- rename_stream_of_came_late --
-- A stream has another name in what came late.
UPDATE txbatch.batch
   SET came_late = (SELECT json_object_agg(CASE key WHEN :was THEN :stream ELSE key END, value ORDER BY key COLLATE "C")
                      FROM json_each(came_late))
 WHERE topology = :topology AND came_late -> CAST(:was AS text) IS NOT NULL;

-- plans_of_txids --
-- What batches were planned to read.
SELECT topology, txid, metadata FROM txbatch.batch WHERE topology = :topology AND txid BETWEEN :first AND :last;

-- rename_plan --
-- The same plan, by a stream's other name.
UPDATE txbatch.batch SET metadata = :metadata WHERE topology = :topology AND txid = :txid;

-- manifests_of_txids --
-- What attempts have read, and the plan that they had.
SELECT a.topology, a.txid, a.attempt_id, a.manifest, b.metadata AS plan
  FROM txbatch.attempt a JOIN txbatch.batch b USING (topology, txid)
 WHERE a.topology = :topology AND a.txid BETWEEN :first AND :last AND a.manifest IS NOT NULL;

-- rename_manifest --
-- The same manifest, by a stream's other name.
UPDATE txbatch.attempt SET manifest = :manifest WHERE topology = :topology AND txid = :txid AND attempt_id = :attempt_id;

-- rebuilt_of_txids --
-- What rebuilds have read.
SELECT v.rebuild, v.txid, v.metadata, v.streams FROM txbatch.rebuilt v JOIN txbatch.rebuild r USING (rebuild)
 WHERE r.topology = :topology AND v.txid BETWEEN :first AND :last AND v.streams IS NOT NULL;

-- rename_rebuilt --
-- What a rebuild has read, by a stream's other name.
UPDATE txbatch.rebuilt SET metadata = :metadata, streams = :streams WHERE rebuild = :rebuild AND txid = :txid;

-- insert_state --
-- Take a state's name for a topology; no row comes back when it is taken.
INSERT INTO txbatch.state (state, topology, kind, contributions, columns, database, streams)
VALUES (:state, :topology, :kind, :contributions, CAST(:columns AS json), :database, CAST(:streams AS json))
    ON CONFLICT (state) DO NOTHING RETURNING state;

-- complete_state --
-- Keep what a state lacks that was made before it was kept, and its streams once they are read.
UPDATE txbatch.state SET columns = CAST(:columns AS json), streams = CAST(:streams AS json)
 WHERE state = :state
   AND (columns::text, streams::text) IS DISTINCT FROM (CAST(:columns AS text), CAST(:streams AS text));

-- change_state --
-- Keep what a state is after its definition was changed (R23).
UPDATE txbatch.state
   SET columns = CAST(:columns AS json), contributions = :contributions, values_since = CAST(:values_since AS json)
 WHERE state = :state;

-- left_behind --
-- The copies in other databases that do not count, of states that an earlier version brought back (R21).
SELECT state, left_in AS database FROM txbatch.state WHERE topology = :topology AND left_in IS NOT NULL ORDER BY state;

-- forget_left --
-- Nothing of a state is left in another database.
UPDATE txbatch.state SET left_in = NULL WHERE state = :state;

-- state_joined --
-- A state counts from this txid on (R23).
UPDATE txbatch.state SET joined = :txid WHERE state = :state;

-- fold_state --
-- What a state counted up to this txid is its base (R22).
UPDATE txbatch.state SET horizon = :horizon WHERE state = :state;

-- rename_state --
-- A state has another name.
UPDATE txbatch.state SET state = :state WHERE state = :was;

-- rename_counted --
-- The batches that counted a state say so by its new name.
UPDATE txbatch.batch
   SET keys = (SELECT json_object_agg(CASE key WHEN :was THEN :state ELSE key END, value) FROM json_each(keys)),
       kept = (SELECT json_object_agg(CASE key WHEN :was THEN :state ELSE key END, value) FROM json_each(kept)),
       late = (SELECT json_object_agg(CASE key WHEN :was THEN :state ELSE key END, value) FROM json_each(late)),
       closed_to = (SELECT json_object_agg(CASE key WHEN :was THEN :state ELSE key END, value) FROM json_each(closed_to)),
       closed = (SELECT json_object_agg(CASE key WHEN :was THEN :state ELSE key END, value) FROM json_each(closed))
 WHERE topology = :topology AND (keys -> :was IS NOT NULL OR kept -> :was IS NOT NULL);

-- forget_closings --
-- Nothing says any more which windows of a state that is gone were closed: another one may have its name later.
UPDATE txbatch.batch
   SET closed_to = CAST(CAST(closed_to AS jsonb) - CAST(:state AS text) AS json),
       closed = CAST(NULLIF(CAST(closed AS jsonb) - CAST(:state AS text), '{}') AS json)
 WHERE topology = :topology AND closed_to -> CAST(:state AS text) IS NOT NULL;

-- relations_of_state --
-- The tables of a state, the partitions of its contributions, and the indexes that are named after it; `rest` is what stands
-- behind the state's name.
SELECT n.nspname AS schema, c.relname AS name, c.relkind IN ('I', 'i') AS index, substr(c.relname, length(:state) + 1) AS rest
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname IN ('state', 'contribution', 'contribution_base') AND c.relkind IN ('r', 'p') AND c.relname = :state
    OR n.nspname = 'contribution_partition' AND c.relkind = 'r' AND starts_with(c.relname, :state)
       AND substr(c.relname, length(:state) + 1) ~ '^@[0-9]+$'
    OR n.nspname = 'contribution' AND c.relkind = 'I' AND c.relname = :state || '@txid'
    OR n.nspname IN ('contribution', 'contribution_base') AND c.relkind IN ('I', 'i') AND c.relname = :state || '@ended';

-- forget_state --
-- A state is no more.
DELETE FROM txbatch.state WHERE state = :state;

-- insert_change --
-- Who changed a definition, why, and in what (R23).
INSERT INTO txbatch.change (topology, txid, job, what, why, requested_by)
VALUES (:topology, :txid, :job, CAST(:what AS json), :why, :requested_by);

-- report_columns --
-- The columns of views in the schema report, in order.
SELECT c.relname AS view, array_agg(a.attname::text ORDER BY a.attnum) AS columns
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 WHERE c.relnamespace = 'report'::regnamespace AND c.relkind = 'v' AND c.relname = ANY (:views) GROUP BY c.relname;

-- report_grants --
-- What roles may do with these views and functions, also by what holds where nobody has said otherwise.
SELECT of.kind, of.name, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS role,
       a.privilege_type AS privilege, a.is_grantable AS grantable
  FROM (SELECT 'TABLE', relname, COALESCE(relacl, acldefault('r', relowner)) FROM pg_class
         WHERE relnamespace = 'report'::regnamespace AND relname = ANY (:views)
         UNION ALL
        SELECT 'FUNCTION', proname, COALESCE(proacl, acldefault('f', proowner)) FROM pg_proc
         WHERE pronamespace = 'report'::regnamespace AND proname = ANY (:functions)) of (kind, name, acl), aclexplode(of.acl) a;

-- state --
-- A state as it is stored.
SELECT state, topology, kind, contributions, columns, database, applied_txid FROM txbatch.state WHERE state = :state;

-- states_of --
-- The states of a topology.
SELECT state, topology, kind, contributions, columns, database, applied_txid
  FROM txbatch.state WHERE topology = :topology ORDER BY state;

-- states_apart --
-- The states that are kept in other databases (R21).
SELECT state, topology, kind, database, applied_txid FROM txbatch.state WHERE database IS NOT NULL ORDER BY database, state;

-- apart_committed --
-- The ledger knows now that this txid is in the states apart (R21).
UPDATE txbatch.state SET applied_txid = :txid WHERE state = ANY (:states);

-- ledger --
-- Which ledger this is.
SELECT uuid::text FROM txbatch.ledger;

-- batch --
-- One batch.
SELECT b.*, b.lease_until > clock_timestamp() AS lease_live FROM txbatch.batch b
 WHERE topology = :topology AND txid = :txid;

-- lock_batch --
-- One batch, locked: the fence stands in its row (R5).
SELECT b.*, b.lease_until > clock_timestamp() AS lease_live FROM txbatch.batch b
 WHERE topology = :topology AND txid = :txid FOR UPDATE;

-- lock_free_batch --
-- The same at once; no row while somebody holds it.
SELECT b.*, b.lease_until > clock_timestamp() AS lease_live FROM txbatch.batch b
 WHERE topology = :topology AND txid = :txid FOR UPDATE SKIP LOCKED;

-- look_again --
-- What pg_stat_activity shows stays the same in a transaction, unless asked for anew.
SELECT pg_stat_clear_snapshot();

-- commit_sessions --
-- The sessions that commit under this name, and how far they have come. One `works` when it computes, reads, writes or waits
-- for another's lock, also inside COMMIT, and not when it waits for its own client.
SELECT a.pid, a.backend_start, a.query_start, a.state_change, c.bytes_processed,
       COALESCE(a.state = 'active' AND a.wait_event_type IS DISTINCT FROM 'Client', false) AS works
  FROM pg_stat_activity a LEFT JOIN pg_stat_progress_copy c USING (pid)
 WHERE a.datname = current_database() AND a.usename = current_user AND a.pid <> pg_backend_pid()
   AND a.application_name = :name;

-- terminate_sessions --
-- End these sessions of this name.
SELECT pid, pg_terminate_backend(pid, 10000) FROM pg_stat_activity
 WHERE datname = current_database() AND usename = current_user AND pid = ANY (:pids) AND application_name = :name;

-- who_uses --
-- Other sessions in whose transactions a state's tables or views are locked, the longest first.
SELECT a.pid, a.usename AS role, COALESCE(a.state, 'unknown to this role') AS state,
       COALESCE(to_char(min(a.xact_start), 'YYYY-MM-DD HH24:MI:SS'), 'a time unknown to this role') AS since
  FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a USING (pid)
 WHERE l.granted AND a.datname = current_database() AND a.pid <> pg_backend_pid() AND (c.relnamespace::regnamespace::text, c.relname)
       IN (('report', :state), ('report', :changes), ('contribution', :state), ('state', :state))
 GROUP BY a.pid, a.usename, a.state ORDER BY min(a.xact_start) LIMIT 5;

-- batches_of_keys --
-- The batches that runs find again, each by its key (R2).
SELECT DISTINCT ON (k.key) k.key AS asked, b.*, b.lease_until > clock_timestamp() AS lease_live
  FROM txbatch.batch_key k JOIN txbatch.batch b USING (topology, txid)
 WHERE k.topology = :topology AND k.key = ANY (:keys) AND b.status <> 'aborted'
 ORDER BY k.key, k.ordinal DESC;

-- committed_by --
-- The last batch that a run brought to its commit, its own or an adopted one.
SELECT b.*, b.lease_until > clock_timestamp() AS lease_live FROM txbatch.batch b
 WHERE topology = :topology AND lease_run = :run AND status = 'committed' ORDER BY txid DESC LIMIT 1;

-- open_batches --
-- The batches in flight, oldest first.
SELECT b.*, b.lease_until > clock_timestamp() AS lease_live FROM txbatch.batch b
 WHERE topology = :topology AND status IN ('planned', 'emitted') ORDER BY txid;

-- lock_open_batches --
-- The same, locked: none of them is committed meanwhile.
SELECT b.*, b.lease_until > clock_timestamp() AS lease_live FROM txbatch.batch b
 WHERE topology = :topology AND status IN ('planned', 'emitted') ORDER BY txid FOR UPDATE;

-- versions_of_positions --
-- The first batch of each position, and the restate that counts in the first batch's place (R17).
SELECT b.*, b.lease_until > clock_timestamp() AS lease_live FROM txbatch.batch b
 WHERE topology = :topology AND (txid = ANY (:positions)
    OR kind = 'restate' AND position = ANY (:positions) AND status = 'committed' AND replaced_by IS NULL);

-- last_look --
-- The plan of the last look at a topology's files before a batch: of the newest committed batch that looked for late records.
SELECT txid, metadata FROM txbatch.batch
 WHERE topology = :topology AND txid < :txid AND status = 'committed' AND came_late IS NOT NULL ORDER BY txid DESC LIMIT 1;

-- first_look --
-- Where no batch has looked yet: the plan of the oldest committed batch that ends after a moment, else of the newest.
SELECT txid, metadata FROM txbatch.batch
 WHERE topology = :topology AND txid < :txid AND status = 'committed' AND kind = 'ordinary' AND data_interval IS NOT NULL
 ORDER BY CASE WHEN upper(data_interval) > CAST(:since AS timestamptz) THEN txid END, txid DESC LIMIT 1;

-- intervals_before --
-- The intervals of a topology's batches below a txid: the newest ones, and more that end after a moment.
SELECT txid, interval_start, interval_end
  FROM (SELECT txid, lower(data_interval) AS interval_start, upper(data_interval) AS interval_end,
               row_number() OVER (ORDER BY lower(data_interval) DESC) AS rank
          FROM txbatch.batch
         WHERE topology = :topology AND data_interval IS NOT NULL AND status <> 'aborted' AND kind <> 'restate' AND txid < :txid
         ORDER BY lower(data_interval) DESC LIMIT :most) newest
 WHERE rank <= :newest OR interval_end > CAST(:since AS timestamptz)
 ORDER BY interval_start;

-- counted_plans --
-- The newest committed intervals of a topology in a time, each with the version that counts, and its plan.
SELECT o.txid AS position, v.txid, lower(o.data_interval) AS interval_start, upper(o.data_interval) AS interval_end,
       COALESCE(r.metadata, v.metadata) AS metadata
  FROM (SELECT * FROM txbatch.batch
         WHERE topology = :topology AND data_interval IS NOT NULL AND status = 'committed' AND kind <> 'restate'
           AND lower(data_interval) < :until
           AND (CAST(:since AS timestamptz) IS NULL OR upper(data_interval) > CAST(:since AS timestamptz))
         ORDER BY lower(data_interval) DESC LIMIT :most) o
  JOIN txbatch.batch v ON v.topology = o.topology AND v.status = 'committed' AND v.replaced_by IS NULL
   AND (v.txid = o.txid OR v.kind = 'restate' AND v.position = o.txid)
  LEFT JOIN LATERAL (
       SELECT d.metadata
         FROM (SELECT rebuild FROM txbatch.rebuild
                WHERE topology = o.topology AND status = 'swapped' ORDER BY rebuild DESC LIMIT 1) n
         JOIN txbatch.rebuilt d USING (rebuild) WHERE d.txid = v.txid AND d.metadata IS NOT NULL) r ON true
 ORDER BY interval_start DESC;

-- found_late --
-- Late records that committed batches have met, by position and stream, newest first, without those that a later version
-- counts; and what the plans of both have of these files.
SELECT b.txid AS found_by, s.key AS stream, p.position, p.files, lower(o.data_interval) AS interval_start,
       upper(o.data_interval) AS interval_end, v.txid AS version, v.status, v.lease_run AS run,
       (SELECT json_object_agg(f.key, f.value) FROM json_each(b.metadata #> ARRAY['streams', s.key, 'plan', 'files']) f
         WHERE f.key IN (SELECT json_object_keys(p.files))) AS seen,
       (SELECT json_object_agg(f.key, f.value)
          FROM json_each(COALESCE(r.metadata, v.metadata) #> ARRAY['streams', s.key, 'plan', 'files']) f
         WHERE f.key IN (SELECT json_object_keys(p.files))) AS counted
  FROM txbatch.batch b
 CROSS JOIN LATERAL json_each(b.came_late) s
 CROSS JOIN LATERAL (SELECT CAST(key AS bigint) AS position, value AS files FROM json_each(s.value)) p
  JOIN txbatch.batch o ON (o.topology, o.txid) = (b.topology, p.position)
 CROSS JOIN LATERAL (
       SELECT * FROM txbatch.batch w
        WHERE w.topology = b.topology AND w.status <> 'aborted'
          AND (w.txid = p.position OR w.kind = 'restate' AND w.position = p.position)
        ORDER BY w.txid DESC LIMIT 1) v
  LEFT JOIN LATERAL (
       SELECT d.metadata
         FROM (SELECT rebuild FROM txbatch.rebuild
                WHERE topology = b.topology AND status = 'swapped' ORDER BY rebuild DESC LIMIT 1) n
         JOIN txbatch.rebuilt d USING (rebuild) WHERE d.txid = v.txid AND d.metadata IS NOT NULL) r ON true
 WHERE b.topology = :topology AND b.status = 'committed' AND b.came_late IS NOT NULL AND CAST(b.came_late AS text) <> '{}'
   AND (v.txid < b.txid OR v.status <> 'committed')
 ORDER BY b.txid DESC, p.position DESC, s.key LIMIT :most;

-- replace --
-- A restate counts in a version's place (R17).
UPDATE txbatch.batch SET replaced_by = :txid WHERE topology = :topology AND txid = :replaced;

-- read_by --
-- What final batches read of their partitions.
SELECT txid, stream, partition, status, records, fingerprint FROM txbatch.partition
 WHERE topology = :topology AND txid = ANY (:txids);

-- horizon --
-- Up to which txid contributions are folded in a state of the topology (R22); 0: none is.
SELECT COALESCE(max(horizon), 0) FROM txbatch.state WHERE topology = :topology;

-- newest_ordinary --
-- The batch whose metadata the next plan continues (R3).
SELECT b.*, b.lease_until > clock_timestamp() AS lease_live FROM txbatch.batch b
 WHERE topology = :topology AND status <> 'aborted' AND kind <> 'restate' ORDER BY txid DESC LIMIT 1;

-- last_txid --
-- The highest txid ever given, 0 before the first.
SELECT COALESCE(max(txid), 0) FROM txbatch.batch WHERE topology = :topology;

-- neighbours --
-- The lowest txid below this one that is not final, null when it is this one's turn; the highest committed ordinary txid; and the
-- digest of the topology's definition.
SELECT (SELECT min(txid) FROM txbatch.batch
         WHERE topology = :topology AND txid < :txid AND status IN ('planned', 'emitted')) AS open_before,
       (SELECT max(txid) FROM txbatch.batch
         WHERE topology = :topology AND status = 'committed' AND kind <> 'restate') AS last_committed,
       (SELECT digest FROM txbatch.topology WHERE topology = :topology) AS digest;

-- consumed --
-- Where each partition's next batch starts.
SELECT stream, partition, metadata FROM txbatch.consumed WHERE topology = :topology;

-- consumed_of --
-- The same for the partitions of one batch.
SELECT stream, partition, metadata FROM txbatch.consumed
 WHERE topology = :topology AND stream = :stream AND partition = ANY (:partitions);

-- overlapping_intervals --
-- The intervals of other batches that reach into this one (R2).
SELECT lower(data_interval) AS start, upper(data_interval) AS end FROM txbatch.batch
 WHERE topology = :topology AND data_interval && tstzrange(:interval_start, :interval_end, '[)')
   AND status <> 'aborted' AND kind <> 'restate' ORDER BY 1;

-- counted_within --
-- The committed batches whose intervals reach into this one. Restates have no interval of their own: it is that of their position.
SELECT txid, lower(data_interval) AS interval_start, upper(data_interval) AS interval_end FROM txbatch.batch
 WHERE topology = :topology AND status = 'committed' AND kind <> 'restate'
   AND data_interval && tstzrange(:interval_start, :interval_end) ORDER BY txid;

-- covered --
-- The time that committed batches cover, without gaps: those that runs of a name and a number committed, and all others.
SELECT by_run, lower(each) AS covered_from, upper(each) AS covered_to
  FROM (SELECT COALESCE(starts_with(lease_run, :prefix) AND substr(lease_run, length(:prefix) + 1) ~ '^[0-9]+$', false) AS by_run,
               range_agg(data_interval) AS whole
          FROM txbatch.batch
         WHERE topology = :topology AND status = 'committed' AND kind <> 'restate' AND data_interval IS NOT NULL
         GROUP BY 1) c, unnest(whole) each ORDER BY 2;

-- emitted_in --
-- How long the newest attempt of a batch took.
SELECT finished_at - started_at AS took FROM txbatch.attempt
 WHERE topology = :topology AND txid = :txid ORDER BY attempt_id DESC LIMIT 1;

-- restated --
-- What batches counted, oldest first; of a restate also what the version had read whose place it took.
SELECT b.*, old.txid AS replaces, old.records AS records_before
  FROM report.batches b LEFT JOIN report.batches old ON (old.topology, old.replaced_by) = (b.topology, b.txid)
 WHERE b.topology = :topology AND b.txid = ANY (:txids) ORDER BY b.txid;

-- also_covering --
-- Other batches that have counted, count or gave up records of this one's interval.
SELECT o.txid FROM txbatch.batch b
  JOIN txbatch.batch o ON o.topology = b.topology AND o.txid <> b.txid AND o.data_interval && b.data_interval
   AND o.status <> 'aborted' AND o.kind <> 'restate'
 WHERE b.topology = :topology AND b.txid = :txid ORDER BY o.txid;

-- clock --
-- The only clock that decides anything.
SELECT clock_timestamp();

-- insert_batches --
-- Txids with their metadata (R1); those with a position count that again (R17).
INSERT INTO txbatch.batch (topology, txid, position, kind, key, data_interval, metadata, prev_txid, lease_run, lease_until,
                           reason, requested_by, found_by)
SELECT :topology, p.txid, COALESCE(p.position, p.txid), CASE WHEN p.position IS NULL THEN 'ordinary' ELSE 'restate' END, p.key,
       CASE WHEN p.position IS NOT NULL THEN again.data_interval
            WHEN p.interval_start IS NOT NULL THEN tstzrange(p.interval_start, p.interval_end, '[)') END,
       CAST(p.metadata AS json), p.prev_txid, p.run, clock_timestamp() + make_interval(secs => :lease_seconds),
       p.reason, p.requested_by, p.found_by
  FROM unnest(CAST(:txids AS bigint[]), CAST(:positions AS bigint[]), CAST(:keys AS text[]), CAST(:starts AS timestamptz[]),
              CAST(:ends AS timestamptz[]), CAST(:plans AS text[]), CAST(:prev_txids AS bigint[]), CAST(:runs AS text[]),
              CAST(:reasons AS text[]), CAST(:requested_by AS text[]), CAST(:found_by AS bigint[]))
       AS p(txid, position, key, interval_start, interval_end, metadata, prev_txid, run, reason, requested_by, found_by)
  LEFT JOIN txbatch.batch again ON (again.topology, again.txid) = (:topology, p.position)
 ORDER BY p.txid
RETURNING *, lease_until > clock_timestamp() AS lease_live;

-- insert_batch_keys --
-- Let runs find their batches again.
INSERT INTO txbatch.batch_key (topology, key, ordinal, txid, dag_id, run_id)
SELECT :topology, p.key, 1 + COALESCE((SELECT max(k.ordinal) FROM txbatch.batch_key k
                                        WHERE (k.topology, k.key) = (:topology, p.key)), 0),
       p.txid, p.dag_id, p.run_id
  FROM unnest(CAST(:txids AS bigint[]), CAST(:keys AS text[]), CAST(:dag_ids AS text[]), CAST(:run_ids AS text[]))
       AS p(txid, key, dag_id, run_id);

-- take_lease --
-- The run looks after the batch from now on.
UPDATE txbatch.batch SET lease_run = :run, lease_until = clock_timestamp() + make_interval(secs => :lease_seconds)
 WHERE topology = :topology AND txid = :txid;

-- renew_lease --
-- The run is alive; no row when the attempt is not the newest any more. A row that is locked is at work, and is not waited for: the
-- leases of the call's other batches would end meanwhile.
WITH free AS (
    SELECT txid FROM txbatch.batch WHERE topology = :topology AND txid = :txid FOR NO KEY UPDATE SKIP LOCKED
), renewed AS (
    UPDATE txbatch.batch b SET lease_until = clock_timestamp() + make_interval(secs => :lease_seconds) FROM free f
     WHERE b.topology = :topology AND b.txid = f.txid AND b.fence = :attempt_id AND b.token = :token
       AND b.status IN ('planned', 'emitted')
)
SELECT txid FROM txbatch.batch
 WHERE topology = :topology AND txid = :txid AND fence = :attempt_id AND token = :token AND status IN ('planned', 'emitted');

-- renew_waiting_lease --
-- The run waits, and is alive; no row when another looks after the batch, or it is over. A locked row is not waited for, either.
WITH free AS (
    SELECT txid FROM txbatch.batch WHERE topology = :topology AND txid = :txid FOR NO KEY UPDATE SKIP LOCKED
), renewed AS (
    UPDATE txbatch.batch b SET lease_until = clock_timestamp() + make_interval(secs => :lease_seconds) FROM free f
     WHERE b.topology = :topology AND b.txid = f.txid AND b.lease_run = :run AND b.status IN ('planned', 'emitted')
)
SELECT txid FROM txbatch.batch
 WHERE topology = :topology AND txid = :txid AND lease_run = :run AND status IN ('planned', 'emitted');

-- renew_leases_of_run --
-- A run that waited for the ledger is alive: its open batches, and those of the runs named after it and a number. What is locked is
-- not waited for, as above.
UPDATE txbatch.batch SET lease_until = clock_timestamp() + make_interval(secs => :lease_seconds)
 WHERE topology = :topology AND txid IN (
       SELECT txid FROM txbatch.batch
        WHERE topology = :topology AND status IN ('planned', 'emitted')
          AND (lease_run = :run OR (starts_with(lease_run, :parts) AND substr(lease_run, length(:parts) + 1) ~ '^[0-9]+$'))
        ORDER BY txid FOR UPDATE SKIP LOCKED);

-- supersede_attempts --
-- Older attempts of the txid are over.
UPDATE txbatch.attempt SET status = 'superseded', finished_at = COALESCE(finished_at, clock_timestamp())
 WHERE topology = :topology AND txid = :txid AND status IN ('emitting', 'emitted');

-- raise_fence --
-- Issue the next attempt_id and token, and record the attempt (R5).
WITH raised AS (
    UPDATE txbatch.batch
       SET status = 'planned', fence = fence + 1, token = gen_random_uuid()::text, lease_run = :run,
           lease_until = clock_timestamp() + make_interval(secs => :lease_seconds)
     WHERE topology = :topology AND txid = :txid RETURNING topology, txid, fence, token
)
INSERT INTO txbatch.attempt (topology, txid, attempt_id, token, run, code)
SELECT topology, txid, fence, token, :run, :code FROM raised RETURNING attempt_id, token;

-- knows_attempt --
-- Whether this ledger issued the attempt.
SELECT EXISTS (SELECT FROM txbatch.attempt
                WHERE topology = :topology AND txid = :txid AND attempt_id = :attempt_id AND token = :token);

-- fail_attempt --
-- Why an attempt failed.
UPDATE txbatch.attempt SET status = 'failed', error = :error, finished_at = clock_timestamp()
 WHERE topology = :topology AND txid = :txid AND attempt_id = :attempt_id AND status = 'emitting';

-- attempt --
-- One attempt.
SELECT * FROM txbatch.attempt WHERE topology = :topology AND txid = :txid AND attempt_id = :attempt_id;

-- earlier_manifests --
-- What earlier attempts of the txid read.
SELECT manifest FROM txbatch.attempt
 WHERE topology = :topology AND txid = :txid AND attempt_id < :attempt_id AND manifest IS NOT NULL ORDER BY attempt_id;

-- batch_emitted --
-- The attempt's work is complete, also when whoever submitted it had called it failed: the batch may be committed.
WITH complete AS (
    UPDATE txbatch.attempt
       SET status = 'emitted', manifest = CAST(:manifest AS json), error = NULL, finished_at = clock_timestamp()
     WHERE topology = :topology AND txid = :txid AND attempt_id = :attempt_id)
UPDATE txbatch.batch SET status = 'emitted', lease_until = clock_timestamp() + make_interval(secs => :lease_seconds)
 WHERE topology = :topology AND txid = :txid RETURNING *, lease_until > clock_timestamp() AS lease_live;

-- insert_partitions --
-- What a committed batch read of its partitions.
INSERT INTO txbatch.partition (topology, stream, partition, txid, status, metadata, records, fingerprint, reason)
SELECT CAST(:topology AS text), stream, partition, CAST(:txid AS bigint), status, metadata, records, fingerprint, reason
  FROM unnest(CAST(:stream AS text[]), CAST(:partition AS text[]), CAST(:status AS text[]), CAST(:metadata AS json[]),
              CAST(:records AS bigint[]), CAST(:fingerprint AS numeric[]), CAST(:reason AS text[]))
       AS ended (stream, partition, status, metadata, records, fingerprint, reason);

-- set_consumed --
-- The next batch of these partitions starts after these ranges.
INSERT INTO txbatch.consumed AS c (topology, stream, partition, txid, metadata, latest)
SELECT CAST(:topology AS text), stream, partition, CAST(:txid AS bigint), metadata, latest
  FROM unnest(CAST(:stream AS text[]), CAST(:partition AS text[]), CAST(:metadata AS json[]), CAST(:latest AS bigint[]))
       AS ended (stream, partition, metadata, latest)
    ON CONFLICT (topology, stream, partition) DO UPDATE SET txid = EXCLUDED.txid, metadata = EXCLUDED.metadata,
       latest = GREATEST(c.latest, EXCLUDED.latest);

-- watermarks --
-- Where the watermarks of a topology's streams are since its last commit (R25).
SELECT watermark FROM txbatch.batch
 WHERE topology = :topology AND status = 'committed' AND watermark IS NOT NULL ORDER BY txid DESC LIMIT 1;

-- latest_of --
-- The largest time that was read of some partitions.
SELECT partition, latest FROM txbatch.consumed
 WHERE topology = :topology AND stream = :stream AND partition = ANY (:partitions);

-- set_behind --
-- A batch could not read these partitions, or was aborted before it did.
INSERT INTO txbatch.behind AS b (topology, stream, partition, txid)
SELECT CAST(:topology AS text), stream, partition, CAST(:txid AS bigint)
  FROM unnest(CAST(:stream AS text[]), CAST(:partition AS text[])) AS missed (stream, partition)
 ORDER BY stream, partition
    ON CONFLICT (topology, stream, partition) DO UPDATE SET txid = GREATEST(b.txid, EXCLUDED.txid);

-- lock_behind --
-- The partitions that are behind, locked in their order, and with them those that a batch could not read: one pass over all that a
-- commit writes of them. A commit is the only one that removes some.
INSERT INTO txbatch.behind AS b (topology, stream, partition, txid)
SELECT CAST(:topology AS text), stream, partition, max(txid)
  FROM (SELECT stream, partition, CAST(:txid AS bigint) AS txid
          FROM unnest(CAST(:stream AS text[]), CAST(:partition AS text[])) AS missed (stream, partition)
         UNION ALL
        SELECT stream, partition, txid FROM txbatch.behind WHERE topology = :topology) every
 GROUP BY stream, partition ORDER BY stream, partition
    ON CONFLICT (topology, stream, partition) DO UPDATE SET txid = GREATEST(b.txid, EXCLUDED.txid);

-- caught_up --
-- Partitions that were read, or given up, since they were behind.
WITH read AS (
       SELECT b.stream, b.partition FROM txbatch.behind b JOIN txbatch.consumed c USING (topology, stream, partition)
        WHERE topology = :topology AND c.txid > b.txid ORDER BY b.stream, b.partition FOR UPDATE OF b)
DELETE FROM txbatch.behind b USING read r
 WHERE b.topology = :topology AND (b.stream, b.partition) = (r.stream, r.partition);

-- whole_to --
-- The end of the committed intervals without a gap: the first that has reached a time, in microseconds; null: the very first.
SELECT upper(r) FROM (SELECT unnest(range_agg(tstzrange(starts, ends))) AS r FROM txbatch.counted WHERE topology = :topology) i
 WHERE CAST(:reached AS bigint) IS NULL OR upper(r) >= timestamptz 'epoch' + CAST(:reached AS bigint) * interval '1 microsecond'
 ORDER BY r LIMIT 1;

-- let_plan --
-- Many may plan at once, while no commit closes windows of the topology: what it has not seen might count in them (R26). Its states
-- are locked for that, which no reader can do; an advisory lock anybody could take.
SELECT state FROM txbatch.state WHERE topology = :topology ORDER BY state FOR SHARE;

-- close_alone --
-- The last lock of a commit that closes windows, and of a fold: it waits for plans under way, and keeps others out until it ends.
SELECT state FROM txbatch.state WHERE topology = :topology ORDER BY state FOR NO KEY UPDATE;

-- closed_to --
-- Up to when the windows of each state are closed since the last commit of its topology (R26).
SELECT closed_to FROM txbatch.batch
 WHERE topology = :topology AND status = 'committed' AND closed_to IS NOT NULL ORDER BY txid DESC LIMIT 1;

-- uncounted --
-- What may still count for the first time: the largest time of each partition that is behind, null where it was never read; and,
-- without a stream, the watermarks of the other open plans, null of one that has none. In one statement, for an abort moves a
-- plan from these to those.
SELECT b.stream, c.latest, NULL::json AS watermark, NULL::bigint AS planned_at
  FROM txbatch.behind b LEFT JOIN txbatch.consumed c USING (topology, stream, partition)
 WHERE topology = :topology
 UNION ALL
SELECT NULL, NULL, metadata -> 'watermark', CAST(metadata ->> 'planned_at' AS bigint) FROM txbatch.batch
 WHERE topology = :topology AND txid <> :txid AND status IN ('planned', 'emitted') AND kind = 'ordinary';

-- next_numbers --
-- The number of the next record of each of these streams: what the last committed batch that had one left. Null: none had (R29).
SELECT s.stream,
       (SELECT (b.metadata -> 'base' ->> s.stream)::bigint
               + (SELECT COALESCE(sum(p.records), 0)::bigint FROM txbatch.partition p
                   WHERE p.topology = b.topology AND p.txid = b.txid AND p.stream = s.stream)
          FROM txbatch.batch b
         WHERE b.topology = :topology AND b.status = 'committed' AND b.kind = 'ordinary'
           AND b.metadata -> 'base' ->> s.stream IS NOT NULL
         ORDER BY b.txid DESC LIMIT 1) AS number
  FROM unnest(CAST(:streams AS text[])) s (stream);

-- batch_times --
-- Where the watermarks are since this batch was committed, which windows it closed, how many of its records were late, and how
-- many ahead.
UPDATE txbatch.batch
   SET watermark = CAST(:watermark AS json), late = CAST(:late AS json), closed_to = CAST(:closed_to AS json),
       closed = CAST(:closed AS json), ahead = CAST(:ahead AS bigint), ahead_to = CAST(:ahead_to AS bigint)
 WHERE topology = :topology AND txid = :txid;

-- batch_committed --
-- The batch is final, and its newest attempt is the one that counts. All batches below it are final, but a skip, which has no
-- records, may have come before them (R16).
WITH counts AS (
    UPDATE txbatch.attempt SET status = 'committed'
     WHERE topology = :topology AND txid = :txid AND attempt_id = :attempt_id)
UPDATE txbatch.batch b
   SET status = 'committed', committed_at = clock_timestamp(), committed_fence = fence, records = :records,
       keys = CAST(:keys AS json), kept = CAST(:kept AS json), came_late = CAST(:came_late AS json),
       records_to = CAST(:records AS bigint) + (
           SELECT p.records_to FROM (
                  (SELECT e.txid, e.records_to FROM txbatch.batch e
                    WHERE e.topology = :topology AND e.txid < :txid AND e.status = 'committed' AND e.kind <> 'skip'
                    ORDER BY e.txid DESC LIMIT 1)
                   UNION ALL SELECT 0, 0) p ORDER BY p.txid DESC LIMIT 1)
           - CASE b.kind WHEN 'restate' THEN (
             SELECT COALESCE(sum(o.records), 0) FROM txbatch.batch o
              WHERE o.topology = b.topology AND (o.txid = b.position OR o.kind = 'restate' AND o.position = b.position)
                AND o.replaced_by = b.txid) ELSE 0 END
 WHERE topology = :topology AND txid = :txid;

-- count_interval --
-- The time of a committed batch is counted: the stretches that it touches become one.
WITH new AS (
    SELECT topology, lower(data_interval) AS starts, upper(data_interval) AS ends FROM txbatch.batch
     WHERE topology = :topology AND txid = :txid AND kind <> 'restate' AND data_interval IS NOT NULL
), whole AS (
    SELECT n.topology, LEAST(n.starts, min(c.starts)) AS starts, GREATEST(n.ends, max(c.ends)) AS ends
      FROM new n
      LEFT JOIN LATERAL (
           SELECT p.starts FROM txbatch.counted p
            WHERE p.topology = n.topology AND p.starts <= n.starts ORDER BY p.starts DESC LIMIT 1) l ON true
      LEFT JOIN txbatch.counted c ON c.topology = n.topology AND c.starts BETWEEN COALESCE(l.starts, n.starts) AND n.ends
           AND c.ends >= n.starts
     GROUP BY n.topology, n.starts, n.ends
), within AS (
    DELETE FROM txbatch.counted c USING whole w WHERE c.topology = w.topology AND c.starts > w.starts AND c.starts <= w.ends
)
INSERT INTO txbatch.counted (topology, starts, ends) SELECT topology, starts, ends FROM whole
    ON CONFLICT (topology, starts) DO UPDATE SET ends = EXCLUDED.ends;

-- succeed --
-- success ran; no row when it had run before. It may run twice, so nobody waits for the disk (R8).
UPDATE txbatch.batch SET succeeded_at = clock_timestamp()
 WHERE topology = :topology AND txid = :txid AND status = 'committed' AND succeeded_at IS NULL
   AND set_config('synchronous_commit', 'off', true) = 'off' RETURNING txid;

-- abort --
-- The batch's records are free; why it was asked for stays known.
UPDATE txbatch.batch SET status = 'aborted', aborted_at = clock_timestamp(), abandoned = :abandoned,
       reason = CASE WHEN kind = 'restate' THEN reason || '; aborted: ' || :reason ELSE :reason END
 WHERE topology = :topology AND txid = :txid;

-- insert_skip --
-- A txid of its own for records that are given up: what its plan names, all or some of the aborted batch's, counts as read (R16).
INSERT INTO txbatch.batch (topology, txid, position, kind, status, key, data_interval, metadata, prev_txid, lease_run,
                           lease_until, committed_at, succeeded_at, reason)
SELECT topology, CAST(:skip_txid AS bigint), :skip_txid, 'skip', 'committed', key, data_interval, CAST(:metadata AS json), :prev_txid,
       lease_run, clock_timestamp(), clock_timestamp(), clock_timestamp(), :reason
  FROM txbatch.batch WHERE topology = :topology AND txid = :txid;

-- repoint_keys --
-- Whoever had the aborted batch finds the one that gives its records up, whatever else he has planned since.
INSERT INTO txbatch.batch_key (topology, key, ordinal, txid, dag_id, run_id)
SELECT DISTINCT ON (key) topology, key, newest.ordinal + 1, CAST(:skip_txid AS bigint), dag_id, run_id
  FROM txbatch.batch_key k
  JOIN (SELECT topology, key, max(ordinal) AS ordinal FROM txbatch.batch_key GROUP BY topology, key) newest
       USING (topology, key)
 WHERE topology = :topology AND txid = :txid ORDER BY key, k.ordinal DESC;

-- given_up_by --
-- The txid that counts an aborted batch's records as read for this reason, which names the DAG run that gave them up.
SELECT txid FROM txbatch.batch WHERE topology = :topology AND kind = 'skip' AND reason = :reason ORDER BY txid DESC LIMIT 1;

-- oldest_unfinished --
-- The oldest unfinished batch above a txid whose run has such a name, whether or not that is still alive.
SELECT b.*, b.lease_until > clock_timestamp() AS lease_live FROM txbatch.batch b
 WHERE b.topology = :topology AND starts_with(b.lease_run, :prefix) AND b.succeeded_at IS NULL AND b.status <> 'aborted'
   AND b.txid > :above ORDER BY b.txid LIMIT 1;

-- prove_alive --
-- For as long as this session lives, it holds this key; nobody else knows it.
SELECT pg_advisory_lock(:key);

-- hold_name --
-- Hold a name by a key; no row when a living session of a writer does.
INSERT INTO txbatch.running AS r (topology, name, key, role)
SELECT :topology, :name, :key, oid FROM pg_roles WHERE rolname = session_user
    ON CONFLICT (topology, name) DO UPDATE SET key = EXCLUDED.key, role = EXCLUDED.role, since = EXCLUDED.since
 WHERE NOT EXISTS (
         SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
          WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND a.datname = current_database()
            AND (l.classid::bigint << 32 | l.objid::bigint) = r.key AND a.usesysid = r.role)
RETURNING name;

-- name_held --
-- Whether a living session holds the name.
SELECT EXISTS (
  SELECT FROM txbatch.running r WHERE topology = :topology AND name = :name AND EXISTS (
         SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
          WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND a.datname = current_database()
            AND (l.classid::bigint << 32 | l.objid::bigint) = r.key AND a.usesysid = r.role));

-- release_name --
-- Nobody holds the name by this key any more, and none that ended unreleased a month ago.
DELETE FROM txbatch.running r
 WHERE topology = :topology AND (name = :name AND key = :key OR since < clock_timestamp() - interval '30 days' AND NOT EXISTS (
         SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
          WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND a.datname = current_database()
            AND (l.classid::bigint << 32 | l.objid::bigint) = r.key AND a.usesysid = r.role));

-- batches --
-- The batches of a topology, newest first.
SELECT * FROM report.batches WHERE topology = :topology ORDER BY txid DESC LIMIT :limit;

-- batches_by_txid --
-- Some batches of a topology, oldest first.
SELECT * FROM report.batches WHERE topology = :topology AND txid = ANY (:txids) ORDER BY txid;

-- batches_of_run --
-- The batches that a run of the topology's DAG planned, newest first.
SELECT * FROM report.batches
 WHERE topology = :topology AND run_id = :run_id
   AND txid = ANY (ARRAY(SELECT r.txid FROM report.batch_runs r WHERE r.topology = :topology AND r.run_id = :run_id))
 ORDER BY txid DESC;

-- attempts --
-- The attempts of a topology, newest first.
SELECT * FROM report.attempts WHERE topology = :topology ORDER BY txid DESC, attempt_id DESC LIMIT :limit;

-- note_wait --
-- A run waits for the end of a txid; it keeps the moment at which it began to wait.
INSERT INTO txbatch.waiting (topology, run, txid) VALUES (:topology, :run, :txid)
    ON CONFLICT (topology, run) DO UPDATE SET txid = EXCLUDED.txid;

-- forget_waits --
-- Runs wait no more; those that never came back are forgotten after a month.
DELETE FROM txbatch.waiting
 WHERE topology = :topology AND (run = ANY (:runs) OR since < clock_timestamp() - interval '30 days');

-- waiting --
-- Who waits for whom.
SELECT * FROM report.waiting WHERE CAST(:topology AS text) IS NULL OR topology = :topology ORDER BY topology, txid, since;

-- failing --
-- The batches in flight whose newest attempt failed, and why.
SELECT a.topology, a.txid, a.attempt, a.finished_at, a.error
  FROM report.attempts a JOIN txbatch.batch b ON (b.topology, b.txid, b.fence) = (a.topology, a.txid, a.attempt_id)
 WHERE b.status IN ('planned', 'emitted') AND a.status = 'failed'
   AND (CAST(:topology AS text) IS NULL OR a.topology = :topology) ORDER BY a.topology, a.txid;

-- missed --
-- The states that have not counted every committed txid of their topology (R23).
SELECT topology, state, since_txid, counts_to_txid, missed, missed_txids FROM report.state_coverage
 WHERE missed > 0 AND (CAST(:topology AS text) IS NULL OR topology = :topology) ORDER BY topology, state;

-- vanished --
-- The partitions that are listed no more, by stream.
SELECT topology, stream, min(since) AS since, array_agg(partition ORDER BY partition) AS partitions
  FROM txbatch.missing
 WHERE (CAST(:topology AS text) IS NULL OR topology = :topology)
 GROUP BY topology, stream ORDER BY topology, stream;

-- completeness --
-- How far each partition of a topology is counted.
SELECT * FROM report.completeness WHERE topology = :topology ORDER BY stream, partition;

-- left_out --
-- By stream, the partitions that a batch left out and that no batch has read since: the first names, how many, since which txid.
SELECT topology, stream, 'left_out' AS what, min(since) AS since_txid, count(*) AS many,
       array_agg(partition ORDER BY partition) FILTER (WHERE number <= :named) AS partitions
  FROM (SELECT b.topology, b.stream, b.partition, h.since,
               row_number() OVER (PARTITION BY b.topology, b.stream ORDER BY b.partition) AS number
          FROM txbatch.behind b
          LEFT JOIN txbatch.consumed c USING (topology, stream, partition)
         CROSS JOIN LATERAL (
               SELECT min(u.txid) AS since FROM txbatch.partition u
                WHERE (u.topology, u.stream, u.partition) = (b.topology, b.stream, b.partition)
                  AND u.status = 'unreadable' AND u.txid > COALESCE(c.txid, 0) AND NOT EXISTS (
                      SELECT FROM txbatch.batch r WHERE (r.topology, r.txid, r.kind) = (u.topology, u.txid, 'restate'))) h
         WHERE h.since IS NOT NULL AND (CAST(:topology AS text) IS NULL OR b.topology = :topology)) p
 GROUP BY topology, stream ORDER BY topology, stream;

-- given_up --
-- By stream, the partitions whose records one of a topology's last thousand batches gave up, if no restate counts them.
SELECT topology, stream, 'given_up' AS what, array_agg(DISTINCT txid) AS txids, count(DISTINCT partition) AS many,
       array_agg(DISTINCT partition) FILTER (WHERE number <= :named) AS partitions
  FROM (SELECT t.topology, p.stream, p.partition, b.txid,
               dense_rank() OVER (PARTITION BY t.topology, p.stream ORDER BY p.partition) AS number
          FROM txbatch.topology t
         CROSS JOIN LATERAL (  -- of its own, by OFFSET 0: else PostgreSQL looks anew for each skip where the last thousand begin
               SELECT k.txid FROM (
                      SELECT s.txid, s.status, s.replaced_by FROM txbatch.batch s
                       WHERE s.topology = t.topology AND s.kind = 'skip' ORDER BY s.txid DESC LIMIT 1000) k
                WHERE k.status <> 'aborted' AND k.replaced_by IS NULL AND k.txid > COALESCE((
                      SELECT l.txid FROM txbatch.batch l
                       WHERE l.topology = t.topology AND l.status <> 'aborted' AND l.kind <> 'restate'
                       ORDER BY l.txid DESC OFFSET 1000 LIMIT 1), 0) OFFSET 0) b
          JOIN txbatch.partition p ON (p.topology, p.txid, p.status) = (t.topology, b.txid, 'skipped')
         WHERE CAST(:topology AS text) IS NULL OR t.topology = :topology) g
 GROUP BY topology, stream ORDER BY topology, stream;

-- holes_of --
-- By stream, the holes of some ordinary batches: partitions left out as of the last of them, read again after a hole, or read
-- behind records that were given up; and those whose source lists them no more since the plan of one.
WITH told AS (
    SELECT p.stream, p.partition, p.txid, p.status, w.status AS was, w.txid AS was_txid,
           p.txid = max(p.txid) OVER (PARTITION BY p.stream, p.partition) AS newest
      FROM txbatch.partition p
      JOIN txbatch.batch b ON (b.topology, b.txid) = (p.topology, p.txid) AND b.kind <> 'restate'
      LEFT JOIN LATERAL (
           SELECT q.status, q.txid FROM txbatch.partition q
             JOIN txbatch.batch c ON (c.topology, c.txid) = (q.topology, q.txid) AND c.kind <> 'restate'
            WHERE (q.topology, q.stream, q.partition) = (p.topology, p.stream, p.partition) AND q.txid < p.txid
            ORDER BY q.txid DESC LIMIT 1) w ON true
     WHERE p.topology = :topology AND p.txid = ANY (:txids)),
found AS (
    SELECT 'left_out' AS what, stream, partition, txid, NULL::bigint AS gave_up FROM told
     WHERE status = 'unreadable' AND newest
     UNION ALL
    SELECT 'filled', stream, partition, txid, NULL FROM told WHERE status = 'read' AND was = 'unreadable'
     UNION ALL
    SELECT 'given_up', stream, partition, txid, was_txid FROM told
     WHERE status = 'read' AND was = 'skipped' AND partition <> ''
     UNION ALL
    SELECT 'missing', m.stream, m.partition, m.txid, NULL
      FROM (SELECT s.key AS stream, x.partition, b.txid
              FROM txbatch.batch b CROSS JOIN json_each(b.metadata -> 'streams') s
             CROSS JOIN json_array_elements_text(
                   CASE WHEN json_typeof(s.value -> 'missing') = 'array' THEN s.value -> 'missing' ELSE '[]' END) x(partition)
             WHERE b.topology = :topology AND b.txid = ANY (:txids) AND b.kind <> 'restate') m
     WHERE NOT EXISTS (
           SELECT FROM (SELECT l.metadata FROM txbatch.batch l
                         WHERE l.topology = :topology AND l.txid < m.txid AND l.status <> 'aborted' AND l.kind = 'ordinary'
                         ORDER BY l.txid DESC LIMIT 1) before
             CROSS JOIN json_array_elements_text(
                   CASE WHEN json_typeof(before.metadata -> 'streams' -> m.stream -> 'missing') = 'array'
                        THEN before.metadata -> 'streams' -> m.stream -> 'missing' ELSE '[]' END) y(partition)
            WHERE y.partition = m.partition)),
numbered AS (
    SELECT f.*, h.since, dense_rank() OVER (PARTITION BY what, stream ORDER BY partition) AS number
      FROM found f
      LEFT JOIN LATERAL (
           SELECT min(u.txid) AS since FROM txbatch.partition u
             JOIN txbatch.batch c ON (c.topology, c.txid) = (u.topology, u.txid) AND c.kind <> 'restate'
            WHERE (u.topology, u.stream, u.partition) = (:topology, f.stream, f.partition) AND u.status = 'unreadable'
              AND u.txid <= f.txid AND u.txid > COALESCE((
                  SELECT max(r.txid) FROM txbatch.partition r
                    JOIN txbatch.batch d ON (d.topology, d.txid) = (r.topology, r.txid) AND d.kind <> 'restate'
                   WHERE (r.topology, r.stream, r.partition) = (:topology, f.stream, f.partition)
                     AND r.status <> 'unreadable' AND r.txid < f.txid), 0)) h ON f.what IN ('left_out', 'filled'))
SELECT what, stream, min(since) AS since_txid, array_agg(DISTINCT gave_up) AS txids, count(DISTINCT partition) AS many,
       array_agg(DISTINCT partition) FILTER (WHERE number <= :named) AS partitions
  FROM numbered GROUP BY what, stream ORDER BY what DESC, stream;

-- further --
-- What of each topology has to be asked further: late records that batches have met, and states in other databases.
SELECT t.topology,
       EXISTS (SELECT FROM txbatch.batch b
                WHERE b.topology = t.topology AND b.status = 'committed' AND b.came_late IS NOT NULL
                  AND CAST(b.came_late AS text) <> '{}') AS met_late,
       EXISTS (SELECT FROM txbatch.state s WHERE s.topology = t.topology AND s.database IS NOT NULL) AS apart
  FROM txbatch.topology t WHERE CAST(:topology AS text) IS NULL OR t.topology = :topology ORDER BY t.topology;

-- status --
-- One line per topology, without a look at each batch: txids have no gaps, so what is neither aborted nor in flight is committed.
SELECT t.topology, t.job, t.keep,
       (SELECT min(horizon) FROM txbatch.state s WHERE s.topology = t.topology AND contributions) AS horizon,
       n.txid - a.aborted - f.in_flight AS committed, a.aborted, f.in_flight,
       GREATEST(c.txid, s.txid) AS committed_txid, GREATEST(c.committed_at, s.committed_at) AS committed_at,
       CASE WHEN c.txid IS NULL THEN 0 ELSE COALESCE(c.records_to, (
            SELECT sum(b.records)::bigint FROM txbatch.batch b WHERE b.topology = t.topology AND b.replaced_by IS NULL), 0)
       END AS records,
       ARRAY(SELECT s.state FROM txbatch.state s WHERE s.topology = t.topology ORDER BY 1) AS states,
       f.oldest_in_flight
  FROM txbatch.topology t
 CROSS JOIN LATERAL (
       SELECT COALESCE((SELECT b.txid FROM txbatch.batch b WHERE b.topology = t.topology ORDER BY b.txid DESC LIMIT 1), 0) AS txid) n
 CROSS JOIN LATERAL (
       SELECT count(*) AS aborted FROM txbatch.batch b WHERE b.topology = t.topology AND b.status = 'aborted') a
 CROSS JOIN LATERAL (
       SELECT count(*) AS in_flight, clock_timestamp() - min(b.created_at) AS oldest_in_flight FROM txbatch.batch b
        WHERE b.topology = t.topology AND b.status IN ('planned', 'emitted')) f
  LEFT JOIN LATERAL (
       SELECT b.txid, b.committed_at, b.records_to FROM txbatch.batch b
        WHERE b.topology = t.topology AND b.status = 'committed' AND b.kind <> 'skip' ORDER BY b.txid DESC LIMIT 1) c ON true
  LEFT JOIN LATERAL (
       SELECT b.txid, b.committed_at FROM txbatch.batch b
        WHERE b.topology = t.topology AND b.kind = 'skip' ORDER BY b.txid DESC LIMIT 1) s ON true
 WHERE CAST(:topology AS text) IS NULL OR t.topology = :topology
 ORDER BY t.topology;

-- standings --
-- How far each topology is counted, and the obstacles, as readers of the schema report may see both.
SELECT * FROM report.topologies ORDER BY topology;

-- reported_topology --
-- A topology, as readers of the schema report may see it.
SELECT topology, job FROM report.topologies WHERE topology = :topology;

-- reported_state --
-- A state, as readers of the schema report may see it.
SELECT state, topology, kind, contributions, columns, apart AS database FROM report.states WHERE state = :state;

-- reported_windows_left --
-- Which windows have left the states of a topology (R30), as readers of the schema report may see it.
SELECT state, kept, (extract(epoch FROM left_before) * 1000000)::bigint AS left_before, txid, windows, records
  FROM report.windows_left WHERE topology = :topology AND kept IS NOT NULL ORDER BY state;

-- reads_contributions --
-- Whether this session's role may read the contributions themselves, as a writer may.
SELECT has_schema_privilege('contribution', 'USAGE') AND has_schema_privilege('contribution_base', 'USAGE')
   AND has_schema_privilege('txbatch', 'USAGE') AND has_schema_privilege('state', 'USAGE');

-- server --
-- What `doctor` shows of the server.
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS version_num,
       current_user AS user, current_database() AS database, pg_is_in_recovery() AS standby,
       has_database_privilege(current_database(), 'CREATE') AS may_create;

-- roles --
-- Those of these roles that there are, and whether this session may act as each.
SELECT rolname AS role, pg_has_role(oid, 'USAGE') AS member, current_user AS me FROM pg_roles WHERE rolname = ANY (:roles);

-- readers_without_records --
-- Whom these views of a quarantine are for no more: all with a right to one that lack USAGE on the schema of states.
SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS role, c.relname AS view
  FROM pg_class c CROSS JOIN aclexplode(c.relacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
 WHERE c.relnamespace = 'report'::regnamespace AND c.relname = ANY (:views) AND a.grantee <> c.relowner
   AND NOT has_schema_privilege(COALESCE(r.rolname, 'public'), 'state', 'USAGE') ORDER BY 1, 2;

-- rights --
-- What a run, a rebuild and a report need, and this session's role lacks.
SELECT use, string_agg(DISTINCT privilege, ', ') AS privileges, object
  FROM (SELECT 'a run', privilege, 'schema ' || name, has_schema_privilege(to_regnamespace(name), privilege)
          FROM (VALUES ('txbatch', 'USAGE'), ('state', 'USAGE'), ('state', 'CREATE'), ('contribution', 'USAGE'),
                       ('contribution', 'CREATE'), ('contribution_base', 'USAGE'), ('contribution_base', 'CREATE'),
                       ('contribution_partition', 'USAGE'), ('contribution_partition', 'CREATE'), ('report', 'USAGE'),
                       ('report', 'CREATE')) schemas (name, privilege)
        UNION ALL
        SELECT 'a run', privilege, c.oid::regclass::text, has_table_privilege(c.oid, privilege)
          FROM pg_class c CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) privilege
         WHERE c.relnamespace = to_regnamespace('txbatch') AND c.relkind IN ('r', 'p')
           AND (privilege = 'SELECT' OR c.relname <> 'migration')
        UNION ALL
        SELECT 'a run', 'ownership', c.oid::regclass::text, pg_has_role(c.relowner, 'USAGE')
          FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname ~ '^(state|contribution|contribution_base)(_(next|past)_[0-9]+)?$' AND c.relkind IN ('r', 'p')
        UNION ALL
        SELECT 'a run', 'TEMPORARY', 'database ' || current_database(), has_database_privilege(current_database(), 'TEMPORARY')
        UNION ALL
        SELECT 'a rebuild', 'CREATE', 'database ' || current_database(), has_database_privilege(current_database(), 'CREATE')
        UNION ALL
        SELECT 'a report', 'USAGE', 'schema report', has_schema_privilege(to_regnamespace('report'), 'USAGE')
        UNION ALL
        SELECT 'a report', 'SELECT', c.oid::regclass::text, has_table_privilege(c.oid, 'SELECT')
          FROM pg_class c WHERE c.relnamespace = to_regnamespace('report') AND c.relkind IN ('r', 'v', 'm')
        UNION ALL
        SELECT 'a report', 'EXECUTE', 'function ' || p.oid::regprocedure::text, has_function_privilege(p.oid, 'EXECUTE')
          FROM pg_proc p WHERE p.pronamespace = to_regnamespace('report')) needed (use, privilege, object, held)
 WHERE NOT held GROUP BY use, object ORDER BY use DESC, object;

-- other_sessions --
-- Who else is connected to the server, whatever the database, by name.
SELECT DISTINCT COALESCE(NULLIF(application_name, ''), 'process ' || pid) FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY 1;

-- migrations --
-- The migrations that were applied.
SELECT number, name FROM txbatch.migration ORDER BY number;

-- has_ledger --
-- Whether the ledger's schema exists.
SELECT to_regclass('txbatch.migration') IS NOT NULL;

-- lock_migrations --
-- One migration at a time.
LOCK TABLE txbatch.migration IN SHARE ROW EXCLUSIVE MODE;

-- states_called --
-- Those of some names that a state has.
SELECT state FROM txbatch.state WHERE state = ANY (CAST(:names AS text[])) ORDER BY 1;

-- insert_migration --
-- A migration was applied.
INSERT INTO txbatch.migration (number, name) VALUES (:number, :name);

-- forget_topology --
-- Remove a topology's rows from the ledger, children first.
WITH consumed AS (DELETE FROM txbatch.consumed WHERE topology = :topology),
     counted AS (DELETE FROM txbatch.counted WHERE topology = :topology),
     behind AS (DELETE FROM txbatch.behind WHERE topology = :topology),
     partition AS (DELETE FROM txbatch.partition WHERE topology = :topology),
     attempt AS (DELETE FROM txbatch.attempt WHERE topology = :topology),
     batch_key AS (DELETE FROM txbatch.batch_key WHERE topology = :topology),
     state AS (DELETE FROM txbatch.state WHERE topology = :topology),
     waiting AS (DELETE FROM txbatch.waiting WHERE topology = :topology),
     running AS (DELETE FROM txbatch.running WHERE topology = :topology),
     change AS (DELETE FROM txbatch.change WHERE topology = :topology),
     batch AS (DELETE FROM txbatch.batch WHERE topology = :topology)
DELETE FROM txbatch.topology WHERE topology = :topology;

-- relation_exists --
-- Whether a table of this quoted name exists.
SELECT to_regclass(:name) IS NOT NULL;

-- columns_of --
-- The columns of a relation of this quoted name with their types, in order, and what is said of them.
SELECT attname AS name, format_type(atttypid, NULL) AS type, col_description(attrelid, attnum) AS said FROM pg_attribute
 WHERE attrelid = to_regclass(:name) AND attnum > 0 AND NOT attisdropped ORDER BY attnum;

-- report_functions --
-- Functions on the past of states: their bodies, and their arguments and columns with types.
SELECT p.proname AS name, p.oid::regprocedure::text AS signature, p.prosrc AS body,
       (SELECT json_agg(json_build_array(name, format_type(type, NULL)) ORDER BY n)
          FROM unnest(p.proargnames, COALESCE(p.proallargtypes, p.proargtypes::oid[])) WITH ORDINALITY AS each (name, type, n)) AS columns
  FROM pg_proc p WHERE p.pronamespace = 'report'::regnamespace AND p.proname = ANY (:names);

-- hash_in_memory --
-- More memory for this transaction, where it has less.
SELECT set_config('work_mem', :memory, true) WHERE pg_size_bytes(current_setting('work_mem')) < pg_size_bytes(:memory);

-- reach --
-- Which txid was the newest at a moment, and which is it today; and the rebuild that was swapped since it was committed, up to then.
-- A skip that was committed above others which were not counts once these are (R16).
SELECT f.then, f.newest, r.rebuild, r.ended_at AS swapped_at
  FROM (SELECT s.topology, COALESCE(max(b.txid), 0) AS newest,
               COALESCE(max(b.txid) FILTER (WHERE b.committed_at <= CAST(:at AS timestamptz)
                                              AND b.txid < COALESCE(o.later, b.txid + 1)), 0) AS then
          FROM txbatch.state s LEFT JOIN txbatch.batch b ON b.topology = s.topology AND b.status = 'committed'
          LEFT JOIN LATERAL (
               SELECT min(l.txid) AS later FROM txbatch.batch l
                WHERE l.topology = s.topology
                  AND (l.status IN ('planned', 'emitted') OR l.committed_at > CAST(:at AS timestamptz))) o ON true
         WHERE s.state = :state GROUP BY s.state) f
  LEFT JOIN LATERAL (
       SELECT rebuild, ended_at FROM txbatch.rebuild
        WHERE topology = f.topology AND status = 'swapped' AND swapped_txid = f.then AND ended_at <= CAST(:at AS timestamptz)
        ORDER BY rebuild DESC LIMIT 1) r ON true;

-- fold_all --
-- In this transaction the past is computed from all contributions (R19), so that no row of today stands for it.
SELECT set_config('txbatch.far_back', 'on', true);

-- askable --
-- The first and the last txid that a state with a past can be asked as of, without what rebuilds replaced (R19).
SELECT past_from AS first, past_to AS last FROM report.states WHERE state = :state AND contributions;

-- windows_wait --
-- Up to when windows are closed, by topologies of which more intervals are counted behind a gap, and from when on that is (R26).
SELECT t.topology, timestamptz 'epoch' + c.closed_to * interval '1 microsecond' AS closed_to, g.gap_start
  FROM txbatch.topology t CROSS JOIN LATERAL (
       SELECT closed_to, watermark, metadata FROM txbatch.batch b
        WHERE b.topology = t.topology AND b.status = 'committed' AND b.closed_to IS NOT NULL ORDER BY b.txid DESC LIMIT 1) b
 CROSS JOIN LATERAL (SELECT min(value::bigint) AS closed_to FROM json_each_text(b.closed_to)) c
 CROSS JOIN LATERAL (
       SELECT timestamptz 'epoch' + min(value::bigint) * interval '1 microsecond' AS reached FROM json_each_text(b.watermark) w
        WHERE b.metadata -> 'streams' -> w.key -> 'interval' IS NOT NULL) w
 CROSS JOIN LATERAL (
       SELECT min(upper(r)) AS gap_start, count(*) AS runs
         FROM (SELECT unnest(range_agg(tstzrange(i.starts, i.ends))) AS r FROM txbatch.counted i WHERE i.topology = t.topology) i
        WHERE upper(r) >= w.reached) g
 WHERE g.runs > 1 AND (CAST(:topology AS text) IS NULL OR t.topology = :topology) ORDER BY t.topology;

-- restating --
-- Restates that are in flight.
SELECT topology, txid, position, status, requested_by, reason FROM txbatch.batch
 WHERE kind = 'restate' AND status IN ('planned', 'emitted') AND (CAST(:topology AS text) IS NULL OR topology = :topology)
 ORDER BY topology, txid;

-- ahead --
-- The newest of a topology's last twenty batches that read records of a time after it was planned.
SELECT DISTINCT ON (t.topology) t.topology, b.txid, b.ahead,
       timestamptz 'epoch' + b.ahead_to * interval '1 microsecond' AS ahead_to
  FROM txbatch.topology t CROSS JOIN LATERAL (
       SELECT txid, ahead, ahead_to FROM txbatch.batch l WHERE l.topology = t.topology ORDER BY l.txid DESC LIMIT 20) b
 WHERE b.ahead IS NOT NULL AND (CAST(:topology AS text) IS NULL OR t.topology = :topology) ORDER BY t.topology, b.txid DESC;

-- restatements --
-- What was counted again, the newest first.
SELECT * FROM report.restatements WHERE CAST(:topology AS text) IS NULL OR topology = :topology
 ORDER BY topology, txid DESC LIMIT :limit;

-- gaps --
-- The intervals between counted ones that are not counted, and which batch holds them, if one does.
SELECT topology, gap_start, gap_end, txid, status, attempt_status, run, lease_live FROM report.gaps
 WHERE CAST(:topology AS text) IS NULL OR topology = :topology ORDER BY topology, gap_start;

-- partitions --
-- What each batch read of each partition.
SELECT * FROM report.partitions WHERE topology = :topology ORDER BY stream, partition, txid;

-- timeline --
-- Every attempt of some topologies, in the order they began, with its batch.
SELECT a.topology, a.attempt, a.status, a.started_at, a.duration, b.records, b.run_id
  FROM report.attempts a JOIN report.batches b USING (topology, txid)
 WHERE topology = ANY (:topologies) ORDER BY a.started_at, a.attempt_id;

-- counted_ranges --
-- The last committed range of each file that was read once, as its current version read it; of all topologies for null.
SELECT topology, stream, t.source -> stream AS source, partition, COALESCE(again.metadata, c.metadata) AS metadata
  FROM txbatch.consumed c JOIN txbatch.topology t USING (topology)
  LEFT JOIN LATERAL (
       SELECT p.metadata FROM txbatch.partition p JOIN txbatch.batch b USING (topology, txid)
        WHERE p.topology = c.topology AND p.stream = c.stream AND p.partition = c.partition AND p.txid > c.txid
          AND p.status = 'read' AND b.replaced_by IS NULL
        ORDER BY p.txid DESC LIMIT 1) again ON true
 WHERE (CAST(:topology AS text) IS NULL OR topology = :topology) AND t.source -> stream ->> 'spout' = 'FileSpout'
 ORDER BY topology, stream, partition LIMIT :limit;

-- counted_intervals --
-- The plans of committed batches that count and were read by time, newest first, no more than some bytes of a topology: of
-- those topologies that have a stream of a spout.
SELECT t.topology, b.txid, b.kind, t.source, b.metadata, b.created_at, b.many,
       lower(b.data_interval) AS interval_start, upper(b.data_interval) AS interval_end
  FROM txbatch.topology t
 CROSS JOIN LATERAL (
       SELECT l.txid, l.kind, l.metadata, l.created_at, l.data_interval, l.position, row_number() OVER newest AS rank,
              sum(pg_column_size(l.metadata)) OVER newest AS bytes, count(*) OVER () AS many
         FROM txbatch.batch l
        WHERE l.topology = t.topology AND l.status = 'committed' AND l.replaced_by IS NULL AND l.data_interval IS NOT NULL
       WINDOW newest AS (ORDER BY l.txid DESC)) b
 WHERE (CAST(:topology AS text) IS NULL OR t.topology = :topology) AND (b.rank = 1 OR b.bytes <= :bytes)
   AND EXISTS (SELECT FROM json_each(t.source) s WHERE s.value ->> 'spout' = :spout)
 ORDER BY t.topology, b.position DESC;

-- committed_by_each --
-- The txids that runs of a name and a number brought to their commits, their own and adopted ones.
SELECT txid FROM txbatch.batch
 WHERE topology = :topology AND status = 'committed' AND starts_with(lease_run, :prefix)
   AND substr(lease_run, length(:prefix) + 1) ~ '^[0-9]+$' ORDER BY txid;
