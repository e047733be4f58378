-- The message itself says what can be asked: not every client shows a hint.
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
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format('no state %L is known; SELECT state FROM report.state_coverage has them all', known_at.state);
    ELSIF known_at.txid BETWEEN open_from AND newest THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('state %L cannot be asked as of txid %s: txid %s is open, and what it counts would change the answer; ask %sonce txid %s is committed or aborted',
                             known_at.state, known_at.txid, open_from,
                             CASE WHEN horizon < open_from THEN format('for one of %s to %s, or ', horizon, open_from - 1) END, open_from);
    ELSIF known_at.txid IS NULL OR known_at.txid NOT BETWEEN 0 AND newest THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('state %L cannot be asked as of txid %s: the newest committed one is %s; ask for one of %s to %s', known_at.state,
                             COALESCE(known_at.txid::text, 'null'), newest, horizon, LEAST(open_from - 1, newest));
    ELSIF known_at.txid < horizon THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('state %L cannot be asked as of txid %s: retention has folded what it was before txid %s; ask for one of %s to %s',
                             known_at.state, known_at.txid, horizon, horizon, LEAST(open_from - 1, newest));
    END IF;
    PERFORM report.of_one_generation(known_at.state);
    SELECT r.* INTO swapped FROM txbatch.rebuild r JOIN txbatch.state s ON s.topology = r.topology
     WHERE s.state = known_at.state AND r.swapped_txid >= known_at.txid ORDER BY r.swapped_txid, r.rebuild LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('state %L cannot be asked as of txid %s: rebuild %s counted all anew after txid %s, and has what is later; %s',
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
