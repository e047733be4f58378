-- A database with states apart, in which its writer makes everything. Run by who owns the database, or by an administrator,
-- before the first run or after it.
CREATE SCHEMA IF NOT EXISTS txbatch AUTHORIZATION :"writer";
CREATE SCHEMA IF NOT EXISTS state AUTHORIZATION :"writer";
CREATE SCHEMA IF NOT EXISTS report AUTHORIZATION :"writer";
GRANT USAGE, CREATE ON SCHEMA txbatch, state, report TO :"writer";

-- The reader: the reports that are there, and those that are made later.
GRANT USAGE ON SCHEMA report TO :"reader";
GRANT SELECT ON ALL TABLES IN SCHEMA report TO :"reader";
ALTER DEFAULT PRIVILEGES FOR ROLE :"writer" IN SCHEMA report GRANT SELECT ON TABLES TO :"reader";
