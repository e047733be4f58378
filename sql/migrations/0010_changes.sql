-- What of a definition was changed while it had history (R23), and since when a value or a state counts that joined later.
ALTER TABLE txbatch.state ADD COLUMN values_since json;
ALTER TABLE txbatch.state ADD COLUMN joined bigint NOT NULL DEFAULT 1 CHECK (joined >= 1);

CREATE TABLE txbatch.change (
    change       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topology     text COLLATE "C" NOT NULL REFERENCES txbatch.topology,
    txid         bigint NOT NULL,                     -- the first that counts by what was changed
    job          text NOT NULL,
    what         json NOT NULL,                       -- each change, and what became of it
    why          text NOT NULL,
    requested_by text,
    changed_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX change_topology ON txbatch.change (topology, change);

CREATE VIEW report.changes_of_definition AS
SELECT c.topology, c.change, c.txid, e ->> 'what' AS what, e ->> 'how' AS how, c.why, c.requested_by, c.changed_at, c.job
  FROM txbatch.change c, json_array_elements(c.what) e;

CREATE VIEW report.values_since AS
SELECT s.topology, s.state, e.key AS value, e.value::text::bigint AS since_txid
  FROM txbatch.state s, json_each(s.values_since) e;

COMMENT ON VIEW report.changes_of_definition IS 'What was changed of a topology''s states, streams and values while it had history.';
COMMENT ON COLUMN report.changes_of_definition.topology IS 'The pipeline';
COMMENT ON COLUMN report.changes_of_definition.change IS 'What has one number was changed together';
COMMENT ON COLUMN report.changes_of_definition.txid IS 'The first batch that counts by it';
COMMENT ON COLUMN report.changes_of_definition.what IS 'What is otherwise since then';
COMMENT ON COLUMN report.changes_of_definition.how IS 'in place: what was counted is as it would be; from now on: older batches do not count for it';
COMMENT ON COLUMN report.changes_of_definition.why IS 'Why it was changed';
COMMENT ON COLUMN report.changes_of_definition.requested_by IS 'Who changed it';
COMMENT ON COLUMN report.changes_of_definition.changed_at IS 'When';
COMMENT ON COLUMN report.changes_of_definition.job IS 'The job file that defines it so';
COMMENT ON VIEW report.values_since IS 'A value that joined its state later: rows that no batch since then has changed show null.';
COMMENT ON COLUMN report.values_since.topology IS 'The pipeline';
COMMENT ON COLUMN report.values_since.state IS 'The state, reported as report.<state>';
COMMENT ON COLUMN report.values_since.value IS 'The column of that report';
COMMENT ON COLUMN report.values_since.since_txid IS 'The first batch that counts for it';
