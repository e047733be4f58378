-- What the roles of docker/postgres/roles.sql may do in the schemas that `txbatch migrate` has made. Run by their owner.
GRANT USAGE ON SCHEMA txbatch TO txbatch;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA txbatch TO txbatch;
REVOKE INSERT, UPDATE, DELETE ON txbatch.migration FROM txbatch;
GRANT USAGE, CREATE ON SCHEMA state, contribution, contribution_partition, report TO txbatch;
GRANT USAGE ON SCHEMA report TO report;
