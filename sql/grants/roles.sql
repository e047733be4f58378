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
END
$grants$;

-- A reader writes nothing, whatever it sets: large objects are what else it could make.
REVOKE EXECUTE ON FUNCTION pg_catalog.lo_creat(integer), pg_catalog.lo_create(oid), pg_catalog.lo_from_bytea(oid, bytea) FROM PUBLIC;
