-- Named statements of tables that commits fill with new values. See ledger.sql for the form.

-- schema_exists --
-- Whether there is a schema of this quoted name.
SELECT to_regnamespace(:name) IS NOT NULL;

-- rules_by_others --
-- Who says what a write into a table of this quoted name does, with the writer's rights, and is neither the writer, nor a role that
-- the writer is a member of, nor a superuser: the table's owner, or that of a function of its triggers, defaults, rules or checks.
-- A superuser counts as a member of all roles elsewhere, and not here.
WITH RECURSIVE mine (role) AS (
    SELECT oid FROM pg_roles WHERE rolname = current_user
    UNION SELECT m.roleid FROM pg_auth_members m JOIN mine ON mine.role = m.member),
of (class, object) AS (
    SELECT 'pg_trigger'::regclass, oid FROM pg_trigger WHERE tgrelid = to_regclass(:name) AND NOT tgisinternal
    UNION ALL SELECT 'pg_attrdef'::regclass, oid FROM pg_attrdef WHERE adrelid = to_regclass(:name)
    UNION ALL SELECT 'pg_rewrite'::regclass, oid FROM pg_rewrite WHERE ev_class = to_regclass(:name)
    UNION ALL SELECT 'pg_constraint'::regclass, oid FROM pg_constraint WHERE conrelid = to_regclass(:name)),
says (what, role) AS (
    SELECT 'TABLE ' || oid::regclass, relowner FROM pg_class WHERE oid = to_regclass(:name)
    UNION ALL SELECT 'FUNCTION ' || p.oid::regprocedure, p.proowner FROM pg_proc p
      JOIN pg_depend d ON (d.refclassid, d.refobjid) = ('pg_proc'::regclass, p.oid) JOIN of ON (class, object) = (d.classid, d.objid))
SELECT what, pg_get_userbyid(role) AS role, current_user AS writer FROM says
 WHERE role NOT IN (SELECT role FROM mine UNION ALL SELECT oid FROM pg_roles WHERE rolsuper) ORDER BY what DESC LIMIT 1;
