-- Which windows have left a state (R30). They are told by the column by which they close, in microseconds since 1970.
CREATE TABLE txbatch.windows_left (
    state       text COLLATE "C" PRIMARY KEY REFERENCES txbatch.state ON UPDATE CASCADE ON DELETE CASCADE,
    kept        json NOT NULL,                       -- the policy then, with how windows are cut
    left_before bigint NOT NULL,                     -- all windows before that have left
    txid        bigint NOT NULL,                     -- the newest committed one when the last of them left
    windows     bigint NOT NULL,                     -- how many have left
    records     bigint,                              -- of how many records they were made; null: not known
    left_at     timestamptz NOT NULL                 -- when the last of them did
);

-- How long windows stay in states, and which have left them (R30).
CREATE VIEW report.windows_left AS
SELECT s.topology, state, (p.kept ->> 'keep')::bigint * interval '1 microsecond' AS keep,
       COALESCE(l.kept, p.kept) -> 'window' ->> 'gap' IS NOT NULL AS sessions,
       timestamptz 'epoch' + l.left_before * interval '1 microsecond' AS left_before,
       COALESCE(l.windows, 0) AS windows, l.records, l.txid, l.left_at
  FROM (SELECT w.key AS state, w.value AS kept
          FROM txbatch.topology t CROSS JOIN LATERAL json_each(t.keep -> 'windows') w) p
  FULL JOIN txbatch.windows_left l USING (state)
  JOIN txbatch.state s USING (state);

COMMENT ON VIEW report.windows_left IS 'A state that windows leave: until when, and how many have left. What it was as of an earlier txid is told without them.';
COMMENT ON COLUMN report.windows_left.topology IS 'The pipeline';
COMMENT ON COLUMN report.windows_left.state IS 'The state';
COMMENT ON COLUMN report.windows_left.keep IS 'Its policy: so long windows stay once they have ended; null: for ever, by now';
COMMENT ON COLUMN report.windows_left.sessions IS 'True: it is of sessions';
COMMENT ON COLUMN report.windows_left.left_before IS 'All windows that begin before have left, and all sessions whose last record is before; null: none has';
COMMENT ON COLUMN report.windows_left.windows IS 'How many rows of its report have left';
COMMENT ON COLUMN report.windows_left.records IS 'Of how many records they were made; null where no value counts them';
COMMENT ON COLUMN report.windows_left.txid IS 'The newest committed txid when the last of them left';
COMMENT ON COLUMN report.windows_left.left_at IS 'When that was';

-- It is told where windows have left since.

CREATE OR REPLACE FUNCTION report.known_at(state text, txid bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    horizon bigint;
    newest bigint;
    swapped record;
    gone record;
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
     WHERE s.state = known_at.state AND r.swapped_txid >= known_at.txid ORDER BY r.swapped_txid, r.rebuild LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('state %L cannot be asked as of txid %s: rebuild %s counted all anew after txid %s, and has what is later',
                             known_at.state, known_at.txid, swapped.rebuild, swapped.swapped_txid),
            HINT = CASE WHEN swapped.dropped_at IS NULL
                        THEN format('Ask report_past_%s.%I(%s) for what was shown then.', swapped.rebuild,
                                    'as_of_' || known_at.state, known_at.txid)
                        ELSE 'What was shown then was dropped.' END;
    END IF;
    SELECT l.* INTO gone FROM txbatch.windows_left l WHERE l.state = known_at.state AND l.txid > known_at.txid;
    IF FOUND THEN
        RAISE WARNING 'state % as of txid % is told without what retention has let go of since: windows that begin, or sessions that end, before %',
            quote_literal(known_at.state), known_at.txid, timestamptz 'epoch' + gone.left_before * interval '1 microsecond'
            USING HINT = 'SELECT * FROM report.windows_left has how many.';
    END IF;
    RETURN true;
END
$$;

CREATE OR REPLACE FUNCTION report.known_before(rebuild bigint, state text, txid bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    first bigint;
    last bigint;
    gone json;
BEGIN
    SELECT r.swapped_txid, GREATEST((r.past -> known_before.state ->> 'horizon')::bigint,
           (SELECT max(p.swapped_txid) + 1 FROM txbatch.rebuild p WHERE p.topology = r.topology AND p.rebuild < r.rebuild)),
           r.past -> known_before.state -> 'left'
      INTO last, first, gone FROM txbatch.rebuild r WHERE r.rebuild = known_before.rebuild;
    IF known_before.txid IS NULL OR known_before.txid NOT BETWEEN first AND last THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('state %L before rebuild %s cannot be asked as of txid %s', known_before.state, known_before.rebuild,
                             COALESCE(known_before.txid::text, 'null')),
            HINT = CASE WHEN first > last
                        THEN 'No batch was committed between the rebuild before it and this one: no txid stands for what was shown then.'
                        ELSE format('Ask for one of %s to %s.', first, last) END;
    END IF;
    IF (gone ->> 'txid')::bigint > known_before.txid THEN
        RAISE WARNING 'state % before rebuild % as of txid % is told without what retention had let go of: windows that begin, or sessions that end, before %',
            quote_literal(known_before.state), rebuild, known_before.txid,
            timestamptz 'epoch' + (gone ->> 'before')::bigint * interval '1 microsecond';
    END IF;
    RETURN true;
END
$$;
