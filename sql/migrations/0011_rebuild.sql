-- A topology's states may be counted anew beside those that count, and take their place (R23).
CREATE TABLE txbatch.rebuild (
    rebuild      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topology     text COLLATE "C" NOT NULL REFERENCES txbatch.topology,
    status       text NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'swapped')),
    why          text NOT NULL,
    requested_by text,
    job          text NOT NULL,
    code         text NOT NULL,                      -- sha256 of the job file
    definition   json NOT NULL,                      -- what its states are
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at     timestamptz,
    swapped_txid bigint,                             -- the newest committed txid when the new generation began to count
    past         json,                               -- what the states were that it replaced
    dropped_at   timestamptz,                        -- when these were dropped
    CHECK ((status = 'swapped') = (ended_at IS NOT NULL)),
    CHECK ((status = 'swapped') = (swapped_txid IS NOT NULL AND past IS NOT NULL)),
    CHECK (dropped_at IS NULL OR status = 'swapped')
);

CREATE UNIQUE INDEX rebuild_running ON txbatch.rebuild (topology) WHERE status = 'running';
CREATE INDEX rebuild_topology ON txbatch.rebuild (topology, rebuild);

-- The versions that a rebuild has counted, in the order of their txids.
CREATE TABLE txbatch.rebuilt (
    rebuild    bigint NOT NULL REFERENCES txbatch.rebuild ON DELETE CASCADE,
    txid       bigint NOT NULL,
    position   bigint NOT NULL,
    keys       json NOT NULL,                        -- keys changed, by state
    kept       json,                                 -- records that reached each state, by state
    records    bigint NOT NULL,
    counted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    counted_in xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (rebuild, txid)
);

CREATE VIEW report.rebuilds AS
SELECT r.topology, r.rebuild, r.status, r.why, r.requested_by, r.job, r.started_at, r.ended_at, r.swapped_txid,
       count(d.txid) AS counted, COALESCE(sum(d.records), 0)::bigint AS records,
       CASE WHEN r.status = 'running' THEN
            (SELECT count(*) FROM txbatch.batch b
              WHERE b.topology = r.topology AND b.status = 'committed' AND b.kind <> 'skip' AND b.replaced_by IS NULL
                AND b.txid > COALESCE(max(d.txid), 0)) END AS to_count,
       r.status = 'swapped' AND r.dropped_at IS NULL AS past_kept
  FROM txbatch.rebuild r LEFT JOIN txbatch.rebuilt d USING (rebuild)
 GROUP BY r.rebuild;

COMMENT ON VIEW report.rebuilds IS 'A rebuild: all batches of a topology counted again by its job as it was then, into a new generation of its states.';
COMMENT ON COLUMN report.rebuilds.topology IS 'The pipeline';
COMMENT ON COLUMN report.rebuilds.rebuild IS 'The number of the rebuild';
COMMENT ON COLUMN report.rebuilds.status IS 'running: the old generation counts; swapped: its own took that one''s place';
COMMENT ON COLUMN report.rebuilds.why IS 'Why it was asked for';
COMMENT ON COLUMN report.rebuilds.requested_by IS 'Who asked for it';
COMMENT ON COLUMN report.rebuilds.job IS 'The job file by which it counts';
COMMENT ON COLUMN report.rebuilds.started_at IS 'When it began';
COMMENT ON COLUMN report.rebuilds.ended_at IS 'When its generation took the old one''s place';
COMMENT ON COLUMN report.rebuilds.swapped_txid IS 'The newest batch that the old generation has';
COMMENT ON COLUMN report.rebuilds.counted IS 'How many batches it has counted';
COMMENT ON COLUMN report.rebuilds.records IS 'Source records that it has read';
COMMENT ON COLUMN report.rebuilds.to_count IS 'How many batches it still has to count; null once it is over';
COMMENT ON COLUMN report.rebuilds.past_kept IS 'Whether the generation that it replaced can still be asked for';

-- What was shown before a swap is not what the new generation amounts to.
CREATE OR REPLACE FUNCTION report.known_at(state text, txid bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    horizon bigint;
    newest bigint;
    swapped record;
BEGIN
    SELECT s.horizon, COALESCE((SELECT max(b.txid) FROM txbatch.batch b WHERE b.topology = s.topology AND b.status = 'committed'), 0)
      INTO horizon, newest FROM txbatch.state s WHERE s.state = known_at.state;
    IF horizon IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format('no state %L is known', known_at.state),
            HINT = 'SELECT state FROM report.state_coverage has them all.';
    ELSIF known_at.txid IS NULL OR known_at.txid NOT BETWEEN 0 AND newest THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('state %L cannot be asked as of txid %s: the newest committed one is %s', known_at.state,
                             COALESCE(known_at.txid::text, 'null'), newest),
            HINT = format('Ask for one of %s to %s.', horizon, newest);
    ELSIF known_at.txid < horizon THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('state %L cannot be asked as of txid %s: retention has folded what it was before txid %s',
                             known_at.state, known_at.txid, horizon),
            HINT = format('Ask for one of %s to %s.', horizon, newest);
    END IF;
    SELECT r.* INTO swapped FROM txbatch.rebuild r JOIN txbatch.state s ON s.topology = r.topology
     WHERE s.state = known_at.state AND r.swapped_txid >= known_at.txid ORDER BY r.rebuild DESC LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('state %L cannot be asked as of txid %s: rebuild %s counted all anew after txid %s, and has what is later',
                             known_at.state, known_at.txid, swapped.rebuild, swapped.swapped_txid),
            HINT = format('Until `txbatch rebuild --drop-past` the tables of that time are in state_past_%s and contribution_past_%s.',
                          swapped.rebuild, swapped.rebuild);
    END IF;
    RETURN true;
END
$$;
