-- Named statements of retention (R22). See ledger.sql for the form.

-- final_txids --
-- The committed txids below the lowest that is open, oldest first, and whether they were committed so long ago.
SELECT txid, committed_at <= clock_timestamp() - make_interval(secs => :seconds) AS old FROM txbatch.batch b
 WHERE topology = :topology AND status = 'committed'
   AND NOT EXISTS (SELECT FROM txbatch.batch o WHERE o.topology = b.topology AND o.txid < b.txid AND o.status IN ('planned', 'emitted'))
 ORDER BY txid;

-- unfolded_versions --
-- The committed versions above the horizon and up to a txid, all restates that came later, and the restates in flight: in one
-- statement, for a restate that is committed meanwhile would be in neither of two.
SELECT position, txid, replaced_by, false AS pending FROM txbatch.batch
 WHERE topology = :topology AND status = 'committed' AND txid > :after AND (txid <= :wanted OR kind = 'restate')
 UNION ALL
SELECT position, txid, NULL, true FROM txbatch.batch
 WHERE topology = :topology AND kind = 'restate' AND status IN ('planned', 'emitted') ORDER BY txid;

-- raise_horizon --
-- Contributions up to this txid are folded, but for those that a later restate has replaced or one in flight refers to.
UPDATE txbatch.state SET horizon = GREATEST(horizon, :horizon) WHERE topology = :topology AND contributions;

-- states_with_contributions --
-- The states of a topology that may be folded.
SELECT state, columns, horizon, pruned FROM txbatch.state WHERE topology = :topology AND contributions ORDER BY state;

-- rows_pruned --
-- Of these positions of a state rows have gone, or, of an empty span, go from now on.
UPDATE txbatch.state SET pruned = CAST(:pruned AS json) WHERE state = :state;

-- pace_of_batches --
-- The last committed batches of a topology: when they were planned, how long their intervals are, and what they changed.
SELECT created_at, upper(data_interval) - lower(data_interval) AS length, keys FROM txbatch.batch
 WHERE topology = :topology AND kind = 'ordinary' AND status = 'committed' ORDER BY txid DESC LIMIT :batches;

-- contributions_stored --
-- What the contributions of each state take on disk, and how many there are by what the batches above the horizon say.
SELECT s.state, (SELECT sum(pg_total_relation_size(p.relid))::bigint
                   FROM pg_partition_tree(to_regclass(format('contribution.%I', s.state))) p) AS size,
       (SELECT sum((b.keys ->> s.state)::bigint) FROM txbatch.batch b
         WHERE b.topology = s.topology AND b.txid > s.horizon AND b.status = 'committed')::bigint AS rows
  FROM txbatch.state s WHERE s.topology = :topology AND s.contributions;

-- forget_attempts --
-- Attempts of folded batches that never counted. A state apart may name one of them: then none is forgotten.
DELETE FROM txbatch.attempt a USING txbatch.batch b
 WHERE b.topology = :topology AND b.txid > :after AND b.txid <= :horizon AND b.status IN ('committed', 'aborted')
   AND (a.topology, a.txid) = (b.topology, b.txid) AND a.status IN ('failed', 'superseded', 'emitting')
   AND NOT EXISTS (SELECT FROM txbatch.state s WHERE s.topology = b.topology AND s.database IS NOT NULL);

-- attempts_to_forget --
-- How many that would be.
SELECT count(*) FROM txbatch.attempt a JOIN txbatch.batch b ON (a.topology, a.txid) = (b.topology, b.txid)
 WHERE b.topology = :topology AND b.txid > :after AND b.txid <= :horizon AND b.status IN ('committed', 'aborted')
   AND a.status IN ('failed', 'superseded', 'emitting')
   AND NOT EXISTS (SELECT FROM txbatch.state s WHERE s.topology = b.topology AND s.database IS NOT NULL);

-- policies --
-- What each topology keeps.
SELECT topology, keep FROM txbatch.topology ORDER BY topology;

-- policy --
-- What a topology keeps.
SELECT keep FROM txbatch.topology WHERE topology = :topology;

-- own_transaction --
-- The number of this transaction: who began later sees all that was committed before.
SELECT pg_current_xact_id()::text;

-- windows_left --
-- Which windows have left the states of a topology (R30).
SELECT l.state, l.kept, l.left_before, l.txid, l.windows, l.records
  FROM txbatch.windows_left l JOIN txbatch.state s USING (state) WHERE s.topology = :topology ORDER BY l.state;

-- let_windows_go --
-- More windows have left a state.
INSERT INTO txbatch.windows_left AS l (state, kept, left_before, txid, windows, records, left_at)
VALUES (:state, CAST(:kept AS json), :before, :txid, :windows, :records, clock_timestamp())
    ON CONFLICT (state) DO UPDATE SET kept = EXCLUDED.kept, left_before = EXCLUDED.left_before, txid = EXCLUDED.txid,
       windows = l.windows + EXCLUDED.windows, records = l.records + EXCLUDED.records, left_at = EXCLUDED.left_at;

-- forget_windows_left --
-- The states of a topology are made anew, with all windows.
DELETE FROM txbatch.windows_left l USING txbatch.state s WHERE s.state = l.state AND s.topology = :topology;

-- closed_to_then --
-- Up to when the windows of each state were closed as of a txid.
SELECT closed_to FROM txbatch.batch WHERE topology = :topology AND closed_to IS NOT NULL AND status = 'committed' AND txid <= :txid
 ORDER BY txid DESC LIMIT 1;

-- least_marks --
-- Of each of these streams the least watermark of the plans above a txid, and how many have none of it; `timed` ones have the plan's time.
SELECT s.stream, min(m.mark) AS mark, count(*) FILTER (WHERE m.mark IS NULL) AS without
  FROM txbatch.batch b
 CROSS JOIN unnest(CAST(:streams AS text[]), CAST(:timed AS boolean[])) s (stream, timed)
 CROSS JOIN LATERAL (SELECT CASE WHEN s.timed THEN (b.metadata ->> 'planned_at')::bigint
                                 ELSE (b.metadata -> 'watermark' ->> s.stream)::bigint END AS mark) m
 WHERE b.topology = :topology AND b.position > :horizon AND b.status <> 'aborted'
 GROUP BY s.stream;

-- whole_readers --
-- The open batches that read all of a state: its first rows or closed windows, or what a rebuild made of it, or that look up in it.
SELECT b.topology, b.txid
  FROM txbatch.batch b JOIN txbatch.topology t USING (topology)
 WHERE b.status IN ('planned', 'emitted')
   AND ((b.metadata -> 'as_of' -> CAST(:state AS text)) IS NOT NULL
        OR EXISTS (SELECT FROM json_each(t.source) s
                    CROSS JOIN LATERAL (SELECT b.metadata -> 'streams' -> s.key -> 'partitions' -> CAST(:state AS text) AS range) p
                    WHERE s.value ->> 'spout' = 'StateSpout' AND s.value ->> 'state' = :state
                      AND ((p.range ->> 'start')::bigint <= :swapped OR p.range ->> 'windows' = 'all')))
 ORDER BY 1, 2;

-- windows_left_of --
-- How long windows stay in states, and which have left them.
SELECT * FROM report.windows_left WHERE CAST(:topology AS text) IS NULL OR topology = :topology ORDER BY topology, state;
