-- The roles. Run by an administrator of the server, in the database of its own that the ledger is to have, before `txbatch migrate`.
-- A role gets its password apart: \password in psql. A person reads as the role of the readers: GRANT that role TO that person.
DO $grants$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = :'owner') THEN
        CREATE ROLE :"owner" LOGIN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = :'writer') THEN
        CREATE ROLE :"writer" LOGIN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = :'reader') THEN
        CREATE ROLE :"reader" NOLOGIN;
    END IF;
    IF :'owner' <> :'writer' AND NOT pg_catalog.pg_has_role(:'owner', :'writer', 'MEMBER') THEN
        GRANT :"writer" TO :"owner"; -- who migrates reaches the tables of states, and gives readers their reports
    END IF;
    -- A rebuild makes schemas, and so does a first run in a warehouse.
    EXECUTE pg_catalog.format('GRANT CONNECT, TEMPORARY, CREATE ON DATABASE %I TO %I, %I',
                              pg_catalog.current_database(), :'owner', :'writer');
    EXECUTE pg_catalog.format('GRANT CONNECT ON DATABASE %I TO %I', pg_catalog.current_database(), :'reader');
    EXECUTE pg_catalog.format('REVOKE CONNECT, TEMPORARY ON DATABASE %I FROM PUBLIC', pg_catalog.current_database());
    IF NOT pg_catalog.has_database_privilege(:'owner', pg_catalog.current_database(), 'CREATE')
        OR NOT pg_catalog.has_database_privilege(:'writer', pg_catalog.current_database(), 'CREATE')
        OR pg_catalog.has_database_privilege('public', pg_catalog.current_database(), 'CONNECT, TEMPORARY') THEN
        RAISE EXCEPTION 'role % may not grant on database %: its owner or a superuser runs this',
                        current_user, pg_catalog.current_database(); -- PostgreSQL itself only warns
    END IF;
    IF pg_catalog.to_regnamespace('public') IS NOT NULL THEN
        REVOKE CREATE ON SCHEMA public FROM PUBLIC; -- a server that was upgraded from PostgreSQL 14 grants it
    END IF;
END
$grants$;

-- A reader writes nothing, whatever it sets: large objects are what else it could make.
REVOKE EXECUTE ON FUNCTION pg_catalog.lo_creat(integer), pg_catalog.lo_create(oid), pg_catalog.lo_from_bytea(oid, bytea) FROM PUBLIC;
