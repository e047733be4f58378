-- What a state was before a rebuild: a restate after the swap changed no key of it, and each key comes once (R19, R23).
DO $$
DECLARE
    made record;
BEGIN
    FOR made IN
        SELECT pg_get_functiondef(p.oid) AS definition, r.swapped_txid
          FROM txbatch.rebuild r
          JOIN pg_namespace n ON n.nspname = 'report_past_' || r.rebuild
          JOIN pg_proc p ON p.pronamespace = n.oid AND starts_with(p.proname, 'as_of_')
         WHERE r.status = 'swapped' AND r.dropped_at IS NULL
    LOOP
        EXECUTE replace(made.definition, 'b.replaced_by > $1', 'b.replaced_by > $1 AND b.replaced_by <= ' || made.swapped_txid);
    END LOOP;
END
$$;
