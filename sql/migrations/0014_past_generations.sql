-- What was shown before a swap is asked of the generation that a rebuild replaced (R19, R23).
CREATE OR REPLACE FUNCTION report.known_at(state text, txid bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    horizon bigint;
    newest bigint;
    swapped record;
BEGIN
    SELECT s.horizon, COALESCE((SELECT max(b.txid) FROM txbatch.batch b WHERE b.topology = s.topology AND b.status = 'committed'), 0)
      INTO horizon, newest FROM txbatch.state s WHERE s.state = known_at.state;
    IF horizon IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format('no state %L is known', known_at.state),
            HINT = 'SELECT state FROM report.state_coverage has them all.';
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
    RETURN true;
END
$$;

-- True, or an error that says why the generation of a state before a rebuild cannot be asked as of a txid.
CREATE FUNCTION report.known_before(rebuild bigint, state text, txid bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    first bigint;
    last bigint;
BEGIN
    SELECT r.swapped_txid, GREATEST((r.past -> known_before.state ->> 'horizon')::bigint,
           (SELECT max(p.swapped_txid) + 1 FROM txbatch.rebuild p WHERE p.topology = r.topology AND p.rebuild < r.rebuild))
      INTO last, first FROM txbatch.rebuild r WHERE r.rebuild = known_before.rebuild;
    IF known_before.txid IS NULL OR known_before.txid NOT BETWEEN first AND last THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('state %L before rebuild %s cannot be asked as of txid %s', known_before.state, known_before.rebuild,
                             COALESCE(known_before.txid::text, 'null')),
            HINT = format('Ask for one of %s to %s.', first, last);
    END IF;
    RETURN true;
END
$$;

COMMENT ON FUNCTION report.known_before(bigint, text, bigint) IS 'True, or an error that says why the generation of a state before a rebuild cannot be asked as of a txid.';
