-- Of no rebuild, of one that has not been swapped or whose past was dropped, and of a state that it did not replace, nothing is known:
-- a comparison with null is no refusal. And the message itself says what can be asked.
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
            MESSAGE = format('state %L before rebuild %s cannot be asked as of txid %s: %s', COALESCE(known_before.state, 'null'),
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
