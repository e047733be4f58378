-- The role that reads reports, on the embedded server: what `txbatch grants` says for others. Run by whoever owns the database,
-- any number of times, by several at once. It may come in by the server's socket only, as everybody there.
DO $$
DECLARE
    other name;
BEGIN
    IF pg_catalog.has_schema_privilege(pg_catalog.to_regrole('report'), 'report', 'USAGE') IS NOT TRUE
        OR pg_catalog.has_schema_privilege(pg_catalog.to_regrole('report'), 'state', 'USAGE') IS NOT TRUE
        OR EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname IN ('postgres', 'template1')
                      AND pg_catalog.has_database_privilege(pg_catalog.to_regrole('report'), oid, 'CONNECT')) THEN
        LOCK TABLE pg_catalog.pg_authid IN SHARE ROW EXCLUSIVE MODE;
        IF pg_catalog.to_regrole('report') IS NULL THEN
            CREATE ROLE report LOGIN NOINHERIT;
        END IF;
        EXECUTE pg_catalog.format('REVOKE ALL ON DATABASE %I FROM PUBLIC', pg_catalog.current_database());
        FOR other IN SELECT datname FROM pg_catalog.pg_database WHERE datname IN ('postgres', 'template1') LOOP
            EXECUTE pg_catalog.format('REVOKE ALL ON DATABASE %I FROM PUBLIC', other); -- there it could make large objects
        END LOOP;
        EXECUTE pg_catalog.format('GRANT CONNECT ON DATABASE %I TO report', pg_catalog.current_database());
        REVOKE EXECUTE ON FUNCTION pg_catalog.lo_creat(integer), pg_catalog.lo_create(oid),
            pg_catalog.lo_from_bytea(oid, bytea) FROM PUBLIC;
        GRANT USAGE ON SCHEMA report TO report;
        GRANT USAGE ON SCHEMA state TO report; -- so it reads quarantines, too: sql/grants/reader.sql
        GRANT SELECT ON ALL TABLES IN SCHEMA report TO report;
        ALTER DEFAULT PRIVILEGES IN SCHEMA report GRANT SELECT ON TABLES TO report;
    END IF;
END
$$;

-- A role may change its own password and settings, those of each database too: what it changed is put back.
DO $$
DECLARE
    settings CONSTANT text[] := ARRAY(
        SELECT (d.datname, s.setconfig)::text FROM pg_catalog.pg_db_role_setting s
          LEFT JOIN pg_catalog.pg_database d ON d.oid = s.setdatabase
         WHERE s.setrole = 'report'::regrole AND (s.setdatabase = 0 OR d.datname = pg_catalog.current_database()));
    password CONSTANT text := (SELECT rolpassword FROM pg_catalog.pg_authid WHERE rolname = 'report');
BEGIN
    IF settings <> ARRAY['(,{default_transaction_read_only=on})'] OR password IS NOT NULL THEN
        SET LOCAL lock_timeout = '5s'; -- of whom this waits for, the next one puts back
        LOCK TABLE pg_catalog.pg_authid, pg_catalog.pg_db_role_setting IN SHARE ROW EXCLUSIVE MODE;
        EXECUTE pg_catalog.format('ALTER ROLE report IN DATABASE %I RESET ALL', pg_catalog.current_database());
        ALTER ROLE report RESET ALL;
        ALTER ROLE report SET default_transaction_read_only = on;
        ALTER ROLE report PASSWORD NULL;
    END IF;
EXCEPTION WHEN lock_not_available THEN
    NULL;
END
$$;
