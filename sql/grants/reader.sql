-- The ledger's reader: the schema report, and nothing else. Run by the owner after `txbatch migrate`; once for each such role.
REVOKE ALL ON SCHEMA txbatch, state, contribution, contribution_base, contribution_partition FROM :"reader";
REVOKE ALL ON ALL TABLES IN SCHEMA txbatch, state, contribution, contribution_base, contribution_partition FROM :"reader";
ALTER DEFAULT PRIVILEGES FOR ROLE :makers REVOKE ALL ON TABLES FROM :"reader";
GRANT USAGE ON SCHEMA report TO :"reader";

-- What first runs, rebuilds and migrations make later. A quarantine that is made later is for those readers alone that have
-- USAGE on the schema state, in which they may read no table.
ALTER DEFAULT PRIVILEGES FOR ROLE :makers IN SCHEMA report GRANT SELECT ON TABLES TO :"reader";
:quarantine GRANT USAGE ON SCHEMA state TO :"reader"; -- `txbatch grants --quarantine`

-- What is there: the reports, also those of before a rebuild; of a quarantine only where the reader is to have its records.
DO $grants$
DECLARE
    shown record;
BEGIN
    FOR shown IN
        SELECT n.nspname, c.relname, EXISTS (
                   SELECT FROM txbatch.topology t CROSS JOIN (VALUES (''), ('_changes'), ('@versions')) v (ending)
                    WHERE c.relname = t.topology || '_quarantine' || v.ending) AS quarantine
          FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname ~ '^report(_past_[0-9]+)?$' AND c.relkind IN ('r', 'v', 'm')
    LOOP
        EXECUTE pg_catalog.format('GRANT USAGE ON SCHEMA %I TO %I', shown.nspname, :'reader');
        IF shown.quarantine AND NOT pg_catalog.has_schema_privilege(:'reader', 'state', 'USAGE') THEN
            EXECUTE pg_catalog.format('REVOKE ALL ON %I.%I FROM %I', shown.nspname, shown.relname, :'reader');
        ELSE
            EXECUTE pg_catalog.format('GRANT SELECT ON %I.%I TO %I', shown.nspname, shown.relname, :'reader');
        END IF;
    END LOOP;
END
$grants$;
