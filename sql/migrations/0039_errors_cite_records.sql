-- An error may cite a record, and is for those roles alone that may read quarantines: sql/grants/reader.sql
CREATE OR REPLACE VIEW report.attempts AS
SELECT a.topology, a.txid, a.attempt_id, a.txid || ':' || a.attempt_id AS attempt, a.status, a.run,
       CASE WHEN a.error IS NULL OR has_schema_privilege('state', 'USAGE') THEN a.error
            ELSE 'not shown to who may not read quarantines: `txbatch grants OWNER WRITER READER --quarantine`' END AS error,
       a.started_at, a.finished_at, a.finished_at - a.started_at AS duration, left(a.code, 12) AS code
  FROM txbatch.attempt a;

COMMENT ON COLUMN report.attempts.error IS 'Why it failed; shown to those roles that may read the records in quarantine';
