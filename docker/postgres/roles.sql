-- Databases and roles, at the server's first start. Passwords come from the environment, so that no command line shows them.
\set ON_ERROR_STOP on
\getenv airflow_password AIRFLOW_PASSWORD
\getenv owner_password TXBATCH_OWNER_PASSWORD
\getenv txbatch_password TXBATCH_PASSWORD
\getenv report_password REPORT_PASSWORD

CREATE ROLE airflow LOGIN PASSWORD :'airflow_password';             -- Airflow's own metadata
CREATE ROLE txbatch_owner LOGIN PASSWORD :'owner_password';         -- migrates the ledger
CREATE ROLE txbatch LOGIN PASSWORD :'txbatch_password';             -- plans and commits, owns the tables of the states
CREATE ROLE report LOGIN PASSWORD :'report_password';               -- reads the views of the schema report
ALTER ROLE report SET default_transaction_read_only = on;

CREATE DATABASE airflow OWNER airflow;
CREATE DATABASE txbatch OWNER txbatch_owner;
REVOKE ALL ON DATABASE airflow, txbatch, postgres FROM PUBLIC;
GRANT CONNECT, TEMPORARY ON DATABASE txbatch TO txbatch;
GRANT CONNECT ON DATABASE txbatch TO report;

\connect txbatch
-- Also on what is made later, the views of states among it. A role reaches only what lies in schemas it has USAGE on (grants.sql).
ALTER DEFAULT PRIVILEGES FOR ROLE txbatch_owner GRANT SELECT ON TABLES TO txbatch;
ALTER DEFAULT PRIVILEGES FOR ROLE txbatch_owner, txbatch GRANT SELECT ON TABLES TO report;
