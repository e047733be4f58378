-- The ledger's writer. Run by the owner after `txbatch migrate`; again when `txbatch doctor` says that a right is missing.
GRANT USAGE ON SCHEMA txbatch TO :"writer";
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA txbatch TO :"writer";
REVOKE INSERT, UPDATE, DELETE ON txbatch.migration FROM :"writer";
GRANT USAGE, CREATE ON SCHEMA state, contribution, contribution_base, contribution_partition, report TO :"writer";
GRANT SELECT ON ALL TABLES IN SCHEMA report TO :"writer";

-- And what later migrations make in these schemas.
ALTER DEFAULT PRIVILEGES FOR ROLE :"owner" IN SCHEMA txbatch GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO :"writer";
ALTER DEFAULT PRIVILEGES FOR ROLE :"owner" IN SCHEMA report GRANT SELECT ON TABLES TO :"writer";
