-- Databases and roles, at the server's first start. Passwords come from the environment, so that no command line shows them.
\set ON_ERROR_STOP on
\getenv airflow_password AIRFLOW_PASSWORD

CREATE ROLE airflow LOGIN PASSWORD :'airflow_password';             -- Airflow's own metadata
CREATE DATABASE airflow OWNER airflow;
REVOKE ALL ON DATABASE airflow FROM PUBLIC;
CREATE DATABASE txbatch;

\connect txbatch
\i /docker-entrypoint-initdb.d/txbatch/10-roles.sql
\i /docker-entrypoint-initdb.d/txbatch/20-passwords.sql
