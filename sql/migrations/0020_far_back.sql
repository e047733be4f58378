-- What lies far back is told in one pass (R17, R19). The functions of states take it up when their job runs next.

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
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format('txbatch.far_back is %L', asked),
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

COMMENT ON FUNCTION report.far_back(text, bigint, bigint) IS 'Whether so much of a state changed between two txids that its past is told in one pass; SET txbatch.far_back = on or off decides it.';
COMMENT ON FUNCTION report.far_before(bigint, text, bigint) IS 'The same of the generation of a state before a rebuild.';

-- They only read: a question with them may be answered by several processes.
ALTER FUNCTION report.known_at(text, bigint) PARALLEL SAFE;
ALTER FUNCTION report.known_before(bigint, text, bigint) PARALLEL SAFE;
