-- Views whose columns hold a function that changes within a statement are read whole: the newest of many batches took all of them.

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
       SELECT dag_id, run_id FROM txbatch.batch_key k
        WHERE k.topology = b.topology AND k.txid = b.txid
        ORDER BY key, ordinal LIMIT 1) k ON true
  LEFT JOIN LATERAL (
       SELECT timestamptz 'epoch' + min(value::bigint) * interval '1 microsecond' AS watermark
         FROM json_each_text(b.watermark)) w ON true
  LEFT JOIN LATERAL (
       SELECT timestamptz 'epoch' + min(value::bigint) * interval '1 microsecond' AS closed_to
         FROM json_each_text(b.closed_to)) s ON true;

CREATE OR REPLACE VIEW report.gaps AS
WITH counted AS (
    SELECT topology, range_agg(data_interval) AS intervals FROM txbatch.batch
     WHERE data_interval IS NOT NULL AND status = 'committed' AND kind <> 'restate' GROUP BY topology
), held AS (
    SELECT b.topology, b.data_interval, b.txid, b.status, a.status AS attempt_status, b.lease_run AS run,
           b.lease_until > statement_timestamp() AS lease_live
      FROM txbatch.batch b JOIN counted c ON c.topology = b.topology AND range_merge(c.intervals) @> b.data_interval
      LEFT JOIN txbatch.attempt a ON (a.topology, a.txid, a.attempt_id) = (b.topology, b.txid, b.fence)
     WHERE b.status IN ('planned', 'emitted') AND b.kind <> 'restate'
), free AS (
    SELECT topology, multirange(range_merge(intervals)) - intervals
           - COALESCE((SELECT range_agg(h.data_interval) FROM held h WHERE h.topology = c.topology), '{}') AS intervals
      FROM counted c
)
SELECT topology, lower(i) AS gap_start, upper(i) AS gap_end, NULL::bigint AS txid, NULL::text AS status,
       NULL::text AS attempt_status, NULL::text AS run, NULL::boolean AS lease_live
  FROM free, unnest(intervals) i
 UNION ALL
SELECT topology, lower(data_interval), upper(data_interval), txid, status, attempt_status, run, lease_live FROM held;

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
        SELECT topology, NULL, run, 'waiting', since, txid FROM txbatch.waiting) w
  JOIN txbatch.batch h ON (h.topology, h.txid) = (w.topology, w.waits_for) AND h.status IN ('planned', 'emitted');

-- True, or an error where this snapshot is of before a swap: functions and tables are those of today, its rows are not (R19, R23).
-- That the schema of a replaced generation is there is seen whatever the snapshot is of.
CREATE FUNCTION report.of_one_generation(state text) RETURNS boolean
    LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    running bigint;
BEGIN
    SELECT r.rebuild INTO running FROM txbatch.rebuild r JOIN txbatch.state s USING (topology)
     WHERE s.state = of_one_generation.state AND r.status = 'running' AND to_regnamespace('report_past_' || r.rebuild) IS NOT NULL;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('state %L cannot be asked for its past here: the transaction began before rebuild %s was swapped',
                             of_one_generation.state, running),
            HINT = 'End the transaction, and ask in a new one.';
    END IF;
    RETURN true;
END
$$;

COMMENT ON FUNCTION report.of_one_generation(text) IS 'True, or an error where a transaction began before a rebuild was swapped that has ended since.';

-- A skip may be committed above what is open: what a state was as of its txid is told once nothing below can change that (R16, R19).
CREATE OR REPLACE FUNCTION report.known_at(state text, txid bigint) RETURNS boolean
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
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format('no state %L is known', known_at.state),
            HINT = 'SELECT state FROM report.state_coverage has them all.';
    ELSIF known_at.txid BETWEEN open_from AND newest THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('state %L cannot be asked as of txid %s: txid %s is open, and what it counts would change the answer',
                             known_at.state, known_at.txid, open_from),
            HINT = format('Ask for one of %s to %s, or once txid %s is committed or aborted.', horizon, open_from - 1, open_from);
    ELSIF known_at.txid IS NULL OR known_at.txid NOT BETWEEN 0 AND newest THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('state %L cannot be asked as of txid %s: the newest committed one is %s', known_at.state,
                             COALESCE(known_at.txid::text, 'null'), newest),
            HINT = format('Ask for one of %s to %s.', horizon, newest);
    ELSIF known_at.txid < horizon THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('state %L cannot be asked as of txid %s: retention has folded what it was before txid %s',
                             known_at.state, known_at.txid, horizon),
            HINT = format('Ask for one of %s to %s.', horizon, newest);
    END IF;
    PERFORM report.of_one_generation(known_at.state);
    SELECT r.* INTO swapped FROM txbatch.rebuild r JOIN txbatch.state s ON s.topology = r.topology
     WHERE s.state = known_at.state AND r.swapped_txid >= known_at.txid ORDER BY r.swapped_txid, r.rebuild LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('state %L cannot be asked as of txid %s: rebuild %s counted all anew after txid %s, and has what is later',
                             known_at.state, known_at.txid, swapped.rebuild, swapped.swapped_txid),
            HINT = CASE WHEN swapped.dropped_at IS NULL
                        THEN format('Ask report_past_%s.%I(%s) for what was shown then.', swapped.rebuild,
                                    'as_of_' || known_at.state, known_at.txid)
                        ELSE 'What was shown then was dropped.' END;
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
