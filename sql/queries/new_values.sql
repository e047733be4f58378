-- Named statements of tables that commits fill with new values. See ledger.sql for the form.

-- schema_exists --
-- Whether there is a schema of this quoted name.
SELECT to_regnamespace(:name) IS NOT NULL;

-- rules_by_others --
-- Who says what a write into a table of this quoted name does, with the writer's rights, and is neither the writer, nor a role that
-- the writer is a member of, nor a superuser: the owner of the table or of a partition, or that of a function or of an operator's
-- function in triggers, defaults, rules, checks, indexes or policies. A superuser counts as a member of all roles elsewhere, and not here.
WITH RECURSIVE mine (role) AS (
    SELECT oid FROM pg_roles WHERE rolname = current_user
    UNION SELECT m.roleid FROM pg_auth_members m JOIN mine ON mine.role = m.member),
written (oid) AS (
    SELECT to_regclass(:name)::oid UNION SELECT relid::oid FROM pg_partition_tree(to_regclass(:name))),
of (class, object) AS (
    SELECT 'pg_trigger'::regclass, t.oid FROM pg_trigger t JOIN written ON t.tgrelid = written.oid WHERE NOT t.tgisinternal
    UNION ALL SELECT 'pg_attrdef'::regclass, d.oid FROM pg_attrdef d JOIN written ON d.adrelid = written.oid
    UNION ALL SELECT 'pg_rewrite'::regclass, r.oid FROM pg_rewrite r JOIN written ON r.ev_class = written.oid
    UNION ALL SELECT 'pg_constraint'::regclass, c.oid FROM pg_constraint c JOIN written ON c.conrelid = written.oid
    UNION ALL SELECT 'pg_class'::regclass, i.indexrelid FROM pg_index i JOIN written ON i.indrelid = written.oid
    UNION ALL SELECT 'pg_policy'::regclass, p.oid FROM pg_policy p JOIN written ON p.polrelid = written.oid),
called (function) AS (
    SELECT CASE d.refclassid WHEN 'pg_operator'::regclass THEN o.oprcode::oid ELSE d.refobjid END
      FROM pg_depend d JOIN of ON (class, object) = (d.classid, d.objid)
      LEFT JOIN pg_operator o ON (d.refclassid, d.refobjid) = ('pg_operator'::regclass, o.oid)
     WHERE d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)),
says (what, role) AS (
    SELECT 'TABLE ' || c.oid::regclass, c.relowner FROM pg_class c JOIN written USING (oid)
    UNION ALL SELECT 'FUNCTION ' || p.oid::regprocedure, p.proowner FROM pg_proc p JOIN called ON p.oid = function)
SELECT what, pg_get_userbyid(role) AS role, current_user AS writer FROM says
 WHERE role NOT IN (SELECT role FROM mine UNION ALL SELECT oid FROM pg_roles WHERE rolsuper) ORDER BY what DESC LIMIT 1;
