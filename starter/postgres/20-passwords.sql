-- Passwords come from the environment, so that no command line shows them.
\set ON_ERROR_STOP on
\getenv owner_password TXBATCH_OWNER_PASSWORD
\getenv writer_password TXBATCH_PASSWORD
\getenv reader_password REPORT_PASSWORD

ALTER ROLE txbatch_owner PASSWORD :'owner_password';
ALTER ROLE txbatch PASSWORD :'writer_password';
ALTER ROLE report LOGIN PASSWORD :'reader_password';
ALTER ROLE report SET default_transaction_read_only = on; -- against slips: a session may set it otherwise, and can write nothing
REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC;   -- where else a role could make something
