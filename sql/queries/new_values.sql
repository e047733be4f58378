-- Named statements of tables that commits fill with new values. See ledger.sql for the form.

-- schema_exists --
-- Whether there is a schema of this quoted name.
SELECT to_regnamespace(:name) IS NOT NULL;
