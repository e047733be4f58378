-- Named statements for a database that is not the ledger's and holds states apart (R21): the warehouse.

-- has_apart --
-- Whether states apart have been here before.
SELECT to_regclass('txbatch.apart') IS NOT NULL;

-- counts_warehouse_migrations --
-- Whether this warehouse says which migrations it has had.
SELECT to_regclass('txbatch.warehouse_migration') IS NOT NULL;

-- warehouse_migrations --
-- The migrations that this warehouse has had.
SELECT number FROM txbatch.warehouse_migration ORDER BY number;

-- lock_warehouse --
-- One migration at a time, while nothing is committed to any state apart that is here: a commit holds its row locked.
LOCK TABLE txbatch.apart IN EXCLUSIVE MODE;

-- insert_warehouse_migration --
-- The warehouse has had this migration.
INSERT INTO txbatch.warehouse_migration (number, name) VALUES (:number, :name);

-- insert_apart --
-- Take a state's name for a topology; no row comes back when it is taken.
INSERT INTO txbatch.apart (state, topology, ledger, kind, columns)
VALUES (:state, :topology, CAST(:ledger AS uuid), :kind, CAST(:columns AS json))
    ON CONFLICT (state) DO NOTHING RETURNING state;

-- apart --
-- A state apart with its last writer.
SELECT state, topology, ledger::text AS ledger, kind, columns, txid, attempt_id, token, digest, status
  FROM txbatch.apart WHERE state = :state;

-- lock_apart --
-- The same, locked: the first lock that an attempt takes here.
SELECT state, topology, ledger::text AS ledger, kind, columns, txid, attempt_id, token, digest, status
  FROM txbatch.apart WHERE state = :state FOR UPDATE;

-- apart_of --
-- The states apart of a topology that are here and belong to a ledger.
SELECT state FROM txbatch.apart WHERE topology = :topology AND ledger = CAST(:ledger AS uuid) ORDER BY state;

-- apart_owners --
-- Whose states apart of a topology are here, and at which txid.
SELECT ledger::text AS ledger, array_agg(state ORDER BY state) AS states, max(txid) AS txid
  FROM txbatch.apart WHERE topology = :topology GROUP BY ledger ORDER BY ledger;

-- set_last_writer --
-- Who wrote here last.
UPDATE txbatch.apart SET txid = :txid, attempt_id = :attempt_id, token = :token, digest = :digest, status = :status,
       changed_at = clock_timestamp()
 WHERE state = :state;

-- forget_apart --
-- The state is dropped.
DELETE FROM txbatch.apart WHERE state = :state;

-- rights_apart --
-- What a run needs in a database with these states apart, and this session's role lacks.
SELECT use, string_agg(DISTINCT privilege, ', ') AS privileges, object
  FROM (SELECT 'a run', privilege, 'schema ' || name, has_schema_privilege(to_regnamespace(name), privilege)
          FROM (VALUES ('txbatch', 'USAGE'), ('state', 'USAGE'), ('state', 'CREATE'), ('report', 'USAGE'),
                       ('report', 'CREATE')) schemas (name, privilege)
        UNION ALL
        SELECT 'a run', privilege, 'txbatch.apart', has_table_privilege(c.oid, privilege)
          FROM pg_class c CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) privilege
         WHERE c.relnamespace = to_regnamespace('txbatch') AND c.relname = 'apart'
        UNION ALL
        SELECT 'a run', 'ownership', c.oid::regclass::text, pg_has_role(c.relowner, 'USAGE')
          FROM pg_class c WHERE c.relnamespace = to_regnamespace('state') AND c.relname = ANY(:states)
        UNION ALL
        SELECT 'a run', 'TEMPORARY', 'database ' || current_database(),
               has_database_privilege(current_database(), 'TEMPORARY')) needed (use, privilege, object, held)
 WHERE NOT held GROUP BY use, object ORDER BY object;
