-- The role that reads reports, on the embedded server: what docs/database.md says for others. Run by whoever owns the database,
-- any number of times. It may come in by the server's socket only, as everybody there.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'report') THEN
        CREATE ROLE report LOGIN NOINHERIT;
        ALTER ROLE report SET default_transaction_read_only = on;
    END IF;
    IF NOT pg_catalog.has_schema_privilege('report', 'report', 'USAGE') THEN
        EXECUTE pg_catalog.format('REVOKE ALL ON DATABASE %I FROM PUBLIC', pg_catalog.current_database());
        EXECUTE pg_catalog.format('GRANT CONNECT ON DATABASE %I TO report', pg_catalog.current_database());
        REVOKE EXECUTE ON FUNCTION pg_catalog.lo_creat(integer), pg_catalog.lo_create(oid),
            pg_catalog.lo_from_bytea(oid, bytea) FROM PUBLIC;
        GRANT USAGE ON SCHEMA report TO report;
        GRANT SELECT ON ALL TABLES IN SCHEMA report TO report;
        ALTER DEFAULT PRIVILEGES IN SCHEMA report GRANT SELECT ON TABLES TO report;
    END IF;
END
$$;
