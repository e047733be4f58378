-- Named statements of rebuilds (R23).

-- lock_topology_alone --
-- The topology's row, for one session alone: no batch of it is planned or committed meanwhile.
SELECT FROM txbatch.topology WHERE topology = :topology FOR UPDATE;

-- insert_rebuild --
-- Begin a rebuild; no row comes back while another one of the topology runs.
INSERT INTO txbatch.rebuild (topology, why, requested_by, job, code, definition)
VALUES (:topology, :why, :by, :job, :code, CAST(:definition AS json))
    ON CONFLICT (topology) WHERE status = 'running' DO NOTHING RETURNING rebuild;

-- running_rebuild --
-- The rebuild of a topology that runs.
SELECT rebuild, topology, job, code, why, definition FROM txbatch.rebuild WHERE topology = :topology AND status = 'running';

-- newest_rebuild --
-- The rebuild of a topology that was begun last.
SELECT rebuild, topology, job, code, why, definition, status, swapped_txid FROM txbatch.rebuild
 WHERE topology = :topology ORDER BY rebuild DESC LIMIT 1;

-- lock_rebuild --
-- A rebuild, if it still runs, locked: who counts for it does so alone.
SELECT rebuild FROM txbatch.rebuild WHERE rebuild = :rebuild AND status = 'running' FOR UPDATE;

-- last_counted --
-- What a rebuild counted last, and the transaction that did; no row before the first.
SELECT txid, counted_in::text AS counted_in FROM txbatch.rebuilt WHERE rebuild = :rebuild ORDER BY txid DESC LIMIT 1;

-- to_count --
-- The versions that a rebuild has to count next, above a txid; no row when it has counted all, or was cancelled.
SELECT b.*, false AS lease_live FROM txbatch.batch b JOIN txbatch.rebuild r USING (topology)
 WHERE b.topology = :topology AND b.status = 'committed' AND b.kind <> 'skip' AND b.replaced_by IS NULL AND r.rebuild = :rebuild
   AND b.txid > GREATEST((SELECT max(txid) FROM txbatch.rebuilt WHERE rebuild = :rebuild), CAST(:behind AS bigint))
 ORDER BY b.txid LIMIT :at_most;

-- newest_to_count --
-- The versions of the newest positions that a rebuild counts.
SELECT b.*, false AS lease_live FROM txbatch.batch b
 WHERE b.topology = :topology AND b.status = 'committed' AND b.kind <> 'skip' AND b.replaced_by IS NULL
 ORDER BY b.position DESC LIMIT :positions;

-- rebuild_extent --
-- What a rebuild counts, and how long that took when it was counted: of those whose attempts are not kept as long as of the others.
SELECT count(*) AS positions, min(b.position) AS first, max(b.position) AS last, COALESCE(sum(b.records), 0)::bigint AS records,
       sum(a.finished_at - a.started_at) * (count(*)::float8 / NULLIF(count(a.finished_at), 0)) AS took
  FROM txbatch.batch b
  LEFT JOIN txbatch.attempt a ON (a.topology, a.txid, a.attempt_id) = (b.topology, b.txid, b.committed_fence)
 WHERE b.topology = :topology AND b.status = 'committed' AND b.kind <> 'skip' AND b.replaced_by IS NULL;

-- rebuild_reads --
-- What a rebuild reads: of each stream the partitions, and how many were read and left out, a batch at a time.
SELECT p.stream, count(DISTINCT p.partition) AS partitions, count(*) FILTER (WHERE p.status = 'read') AS read,
       count(*) FILTER (WHERE p.status <> 'read') AS left_out, COALESCE(sum(p.records), 0)::bigint AS records
  FROM txbatch.batch b JOIN txbatch.partition p ON (p.topology, p.txid) = (b.topology, b.txid)
 WHERE b.topology = :topology AND b.status = 'committed' AND b.kind <> 'skip' AND b.replaced_by IS NULL
 GROUP BY p.stream ORDER BY p.stream;

-- horizon_of --
-- The highest txid whose contributions are folded in a state.
SELECT horizon FROM txbatch.state WHERE state = :state;

-- rebuild_progress --
-- How far a rebuild is, and how long each of its last versions took.
SELECT r.counted, COALESCE(r.to_count, 0) AS to_count,
       (SELECT extract(epoch FROM max(counted_at) - min(counted_at)) / NULLIF(count(*) - 1, 0)
          FROM (SELECT counted_at FROM txbatch.rebuilt WHERE rebuild = :rebuild ORDER BY txid DESC LIMIT 20) lately)::float8
       AS seconds_each
  FROM report.rebuilds r WHERE r.rebuild = :rebuild;

-- insert_rebuilt --
-- A rebuild has counted this version.
INSERT INTO txbatch.rebuilt (rebuild, txid, position, keys, kept, late, records, metadata, streams)
VALUES (:rebuild, :txid, :position, CAST(:keys AS json), CAST(:kept AS json), CAST(:late AS json), :records,
        CAST(:metadata AS json), CAST(:streams AS json));

-- rebuilt_version --
-- The version of a position that a rebuild has counted; 0 when it has counted none.
SELECT COALESCE(max(txid), 0) FROM txbatch.rebuilt WHERE rebuild = :rebuild AND position = :position;

-- cancel_rebuild --
-- Forget a rebuild that runs.
DELETE FROM txbatch.rebuild WHERE rebuild = :rebuild AND status = 'running';

-- past_generations --
-- The rebuilds whose replaced generation is there.
SELECT rebuild, swapped_txid FROM txbatch.rebuild
 WHERE topology = :topology AND status = 'swapped' AND dropped_at IS NULL ORDER BY rebuild;

-- past_dropped --
-- The generation that a rebuild replaced is gone.
UPDATE txbatch.rebuild SET dropped_at = clock_timestamp() WHERE rebuild = :rebuild;

-- forget_rebuilds --
-- Forget all rebuilds of a topology.
DELETE FROM txbatch.rebuild WHERE topology = :topology;

-- rebuild_numbers --
-- All rebuilds of a topology.
SELECT rebuild FROM txbatch.rebuild WHERE topology = :topology;

-- snapshots_before --
-- The transactions at work that may not see what this one wrote: by number, and who they are.
SELECT l.pid || ' ' || l.virtualtransaction AS transaction, a.pid, a.usename AS role,
       COALESCE(to_char(a.xact_start, 'YYYY-MM-DD HH24:MI:SS'), 'a time unknown to this role') AS since
  FROM pg_locks l JOIN pg_stat_activity a USING (pid)
 WHERE l.locktype = 'virtualxid' AND l.granted AND a.datname = current_database() AND a.pid <> pg_backend_pid()
   AND a.usesysid IS NOT NULL AND COALESCE(a.backend_type, 'client backend') = 'client backend' AND a.backend_xmin IS NOT NULL
   AND age(a.backend_xmin) >= age(CAST(CAST(:counted_in AS xid8) AS xid))
 ORDER BY a.xact_start LIMIT 100;

-- others_of_state --
-- Views and the like that read the tables of a state themselves, but for its reports: they would go on reading the old generation.
SELECT DISTINCT d.objid::regclass::text AS reader FROM (
       SELECT r.ev_class AS objid FROM pg_depend p JOIN pg_rewrite r ON p.classid = 'pg_rewrite'::regclass AND r.oid = p.objid
        WHERE p.refclassid = 'pg_class'::regclass AND p.deptype = 'n'
          AND p.refobjid IN (to_regclass(:state), to_regclass(:contribution), to_regclass(:base))) d
  JOIN pg_class c ON c.oid = d.objid
 WHERE c.relnamespace <> 'report'::regnamespace OR c.relname <> ALL (CAST(:reports AS text[])) ORDER BY 1;

-- partitions_of --
-- The partitions of a table, as quoted names.
SELECT format('%I', c.relname) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = to_regclass(:name) ORDER BY 1;

-- replace_state --
-- What a state is in its new generation.
INSERT INTO txbatch.state AS s (state, topology, kind, contributions, columns, database, streams)
VALUES (:state, :topology, :kind, :contributions, CAST(:columns AS json), :database, CAST(:streams AS json))
    ON CONFLICT (state) DO UPDATE SET kind = EXCLUDED.kind, contributions = EXCLUDED.contributions, columns = EXCLUDED.columns,
       streams = EXCLUDED.streams, horizon = 0, applied_txid = NULL, values_since = NULL, joined = 1, pruned = NULL
 WHERE s.topology = EXCLUDED.topology
RETURNING state;

-- readers_of_reports --
-- The roles that may use the schema of reports, quoted, but for its owner.
SELECT CASE WHEN g.grantee = 0 THEN 'PUBLIC' ELSE format('%I', r.rolname) END
  FROM pg_namespace n, aclexplode(n.nspacl) g LEFT JOIN pg_roles r ON r.oid = g.grantee
 WHERE n.nspname = 'report' AND g.privilege_type = 'USAGE' AND g.grantee <> n.nspowner;

-- view_source --
-- What a view selects; null when there is none.
SELECT pg_get_viewdef(to_regclass(:name));

-- past_with --
-- The rebuild before whose swap reports showed a state as of a txid, if one was swapped since; with how far back that can be asked.
SELECT rebuild, NOT past_kept AS dropped, swapped_txid, columns, horizon, windows_left AS left
  FROM report.past_states WHERE state = :state AND swapped_txid >= :txid ORDER BY swapped_txid, rebuild LIMIT 1;

-- counts_as_rebuilt --
-- How many keys each batch changed, what reached each state, and what of it was late, are as the rebuild counted them; of a
-- batch that was replaced, as its place was.
UPDATE txbatch.batch b SET keys = d.keys, kept = d.kept, late = d.late
  FROM (SELECT txid, keys, kept, late FROM txbatch.rebuilt WHERE rebuild = :rebuild
         UNION ALL
        SELECT position, keys, kept, late FROM txbatch.rebuilt WHERE rebuild = :rebuild AND position <> txid) d
 WHERE b.topology = :topology AND b.txid = d.txid AND b.kind <> 'skip';

-- streams_as_rebuilt --
-- The fields and watermarks of a topology's streams are as the rebuild counted them.
UPDATE txbatch.topology SET streams = CAST(:streams AS json), watermarks = CAST(:watermarks AS json) WHERE topology = :topology;

-- records_as_rebuilt --
-- So many records each batch has read are as the rebuild counted them; report.restatements has what they were then.
UPDATE txbatch.batch b SET records = d.records FROM txbatch.rebuilt d
 WHERE d.rebuild = :rebuild AND b.topology = :topology AND b.txid = d.txid;

-- records_to_as_rebuilt --
-- The records of all batches that count are as the rebuild counted them.
UPDATE txbatch.batch b
   SET records_to = (SELECT COALESCE(sum(o.records), 0) FROM txbatch.batch o WHERE o.topology = b.topology AND o.replaced_by IS NULL)
 WHERE b.topology = :topology AND b.txid = (
       SELECT max(n.txid) FROM txbatch.batch n WHERE n.topology = :topology AND n.status = 'committed' AND n.kind <> 'skip');

-- emit_again --
-- What was emitted by the definition before counts no more: another token, and the next attempt reads anew (R5).
UPDATE txbatch.batch SET status = 'planned', token = gen_random_uuid()::text
 WHERE topology = :topology AND status IN ('planned', 'emitted') AND fence > 0 RETURNING txid;

-- rebuild_swapped --
-- The new generation counts.
UPDATE txbatch.rebuild SET status = 'swapped', ended_at = clock_timestamp(), swapped_txid = :txid, past = CAST(:past AS json)
 WHERE rebuild = :rebuild;

-- newest_committed --
-- The newest committed txid.
SELECT max(txid) FROM txbatch.batch WHERE topology = :topology AND status = 'committed';

-- rebuilds --
-- The rebuilds of a topology, newest first.
SELECT * FROM report.rebuilds WHERE topology = :topology ORDER BY rebuild DESC;

-- states_whole --
-- The states of a topology with all that is kept of them.
SELECT s.state, s.kind, s.contributions, s.columns, s.database, s.streams, s.horizon, s.values_since, s.joined, s.pruned,
       CASE WHEN l.state IS NOT NULL THEN json_build_object('kept', l.kept, 'before', l.left_before, 'txid', l.txid) END AS left
  FROM txbatch.state s LEFT JOIN txbatch.windows_left l USING (state) WHERE s.topology = :topology ORDER BY s.state;
