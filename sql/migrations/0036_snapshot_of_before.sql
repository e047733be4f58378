-- A snapshot of before a swap is known by the state's table, which is another one in it: also once what the rebuild replaced was
-- dropped (R19, R23).
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
            MESSAGE = format('state %L cannot be asked for its past here: the transaction began before %s; end it, and ask in a new one',
                             of_one_generation.state, COALESCE('rebuild ' || running || ' was swapped', 'its table became another'));
    END IF;
    RETURN true;
END
$$;
