-- Errors have codes: in report.attempts, and in the texts that functions of report raise.
CREATE OR REPLACE VIEW report.attempts AS
SELECT a.topology, a.txid, a.attempt_id, a.txid || ':' || a.attempt_id AS attempt, a.status, a.run,
       CASE WHEN a.error IS NULL OR has_schema_privilege('state', 'USAGE') THEN a.error
            ELSE 'not shown to who may not read quarantines: `txbatch grants OWNER WRITER READER --quarantine`' END AS error,
       a.started_at, a.finished_at, a.finished_at - a.started_at AS duration, left(a.code, 12) AS code,
       substring(a.error FROM '^(TX[0-9]{3}) ') AS error_code
  FROM txbatch.attempt a;

COMMENT ON COLUMN report.attempts.error_code IS 'The code of the error, which `txbatch explain` explains; null for an attempt without an error, or of a version without codes';

CREATE OR REPLACE FUNCTION report.of_one_generation(state text) RETURNS boolean
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

CREATE OR REPLACE FUNCTION report.known_before(rebuild bigint, state text, txid bigint) RETURNS boolean
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

CREATE OR REPLACE FUNCTION report.far_back(state text, low bigint, high bigint DEFAULT NULL) RETURNS boolean
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

CREATE OR REPLACE FUNCTION report.by_its_job(state text) RETURNS boolean
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
        MESSAGE = format('TX703 (no retry helps): state %L merges values by Python of its job, which SQL cannot run: what it was is told with that alone', state),
        HINT = format('Ask `txbatch as-of %s TXID` in the project''s folder, or Reports.as_of in Python; report.%I has what each batch contributed.',
                      state, state || '_changes');
END
$$;
