-- Of two rebuilds that were swapped at one txid the later one has no txid of its own, and says so.

CREATE OR REPLACE FUNCTION report.known_before(rebuild bigint, state text, txid bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
            HINT = CASE WHEN first > last
                        THEN 'No batch was committed between the rebuild before it and this one: no txid stands for what was shown then.'
                        ELSE format('Ask for one of %s to %s.', first, last) END;
    END IF;
    RETURN true;
END
$$;
