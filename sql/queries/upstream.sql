-- Named statements of states that other topologies read. See ledger.sql for the form.

-- upstream_state --
-- A state, for whoever reads it.
SELECT s.topology, s.contributions, s.database, s.columns, s.horizon, s.joined, s.pruned, t.created_at, l.kept, l.left_before
  FROM txbatch.state s JOIN txbatch.topology t USING (topology) LEFT JOIN txbatch.windows_left l USING (state)
 WHERE s.state = :state;

-- newest_cut --
-- How far a topology is: its newest committed txid below which nothing is open; 0: there is none. A skip may be above what is open (R16).
SELECT COALESCE(max(b.txid), 0) FROM txbatch.batch b
 WHERE b.topology = :topology AND b.status = 'committed'
   AND b.txid < COALESCE((SELECT min(o.txid) FROM txbatch.batch o
                           WHERE o.topology = :topology AND o.status IN ('planned', 'emitted')), b.txid + 1);

-- upstream_replaced --
-- The generations of a state that rebuilds replaced, oldest first; without a horizon where there was no such state.
SELECT r.rebuild, r.swapped_txid, (r.past -> :state ->> 'horizon')::bigint AS horizon,
       r.dropped_at IS NOT NULL OR (r.past -> :state ->> 'contributions') = 'false' AS gone, r.past -> :state -> 'left' AS left,
       r.past -> :state -> 'columns' AS defined,
       CASE WHEN (r.past -> :state -> 'pruned') IS NOT NULL THEN r.past -> :state -> 'pruned'
            WHEN (r.past -> :state -> 'columns' -> 'prune') IS NOT NULL  -- it was replaced before the ledger kept that
            THEN json_build_array(json_build_array(0, r.past -> :state -> 'horizon')) END AS pruned
  FROM txbatch.rebuild r
 WHERE r.topology = :topology AND r.status = 'swapped' ORDER BY r.swapped_txid, r.rebuild;

-- upstream_positions --
-- The positions of a state's topology that were counted, or counted again, after a txid, and which txid did it last.
SELECT b.position, max(b.txid) AS txid FROM txbatch.state s JOIN txbatch.batch b USING (topology)
 WHERE s.state = :state AND b.status = 'committed' AND b.kind <> 'skip' AND b.txid > :after
 GROUP BY b.position ORDER BY 2;

-- upstream_left --
-- Which windows had left a state in the generation that a rebuild replaced.
SELECT r.past -> :state -> 'left' FROM txbatch.rebuild r WHERE r.rebuild = :rebuild;

-- upstream_plans --
-- The plans of the batches that were counted, or counted again, after a txid, up to another.
SELECT b.txid, b.metadata FROM txbatch.batch b
 WHERE b.topology = :topology AND b.status = 'committed' AND b.kind <> 'skip' AND b.txid > :after AND b.txid <= :until
 ORDER BY b.txid;

-- upstream_closings --
-- The batches after a txid, up to another, that closed windows of a state, the key and the starts of these, and up to when.
SELECT b.txid, w.closed ->> 0, (w.closed ->> 1)::bigint, (w.closed ->> 2)::bigint, (b.closed_to ->> CAST(:state AS text))::bigint
  FROM txbatch.batch b CROSS JOIN LATERAL (SELECT b.closed -> CAST(:state AS text) AS closed) w
 WHERE b.topology = :topology AND b.status = 'committed' AND b.txid > :after AND b.txid <= :until
   AND w.closed IS NOT NULL ORDER BY b.txid;

-- upstream_closed_to --
-- Up to when the sessions of a state are closed since each commit that says so, in order.
SELECT b.txid, (b.closed_to ->> CAST(:state AS text))::bigint AS closed_to FROM txbatch.batch b
 WHERE b.topology = :topology AND b.status = 'committed' AND b.closed_to ->> CAST(:state AS text) IS NOT NULL ORDER BY b.txid;

-- last_swapped --
-- The newest txid that only a generation has which a rebuild replaced; 0: none.
SELECT COALESCE(max(swapped_txid), 0) FROM txbatch.rebuild WHERE topology = :topology AND status = 'swapped';

-- looked_up --
-- The states that open batches look up in, whose these are, and as of which txid.
SELECT b.topology, a.key AS state, s.topology AS owner, ARRAY[(a.value ->> 'txid')::bigint] AS needs
  FROM txbatch.batch b
 CROSS JOIN LATERAL json_each(CASE WHEN json_typeof(b.metadata -> 'as_of') = 'object' THEN b.metadata -> 'as_of' END) a
  JOIN txbatch.state s ON s.state = a.key
 WHERE b.status IN ('planned', 'emitted') ORDER BY 1, 2;

-- upstream_readers --
-- The streams that read states, whose these are, the cuts that each reads next, where it is and what its open batches read, and from
-- which cuts these read.
SELECT t.topology, s.value ->> 'state' AS state, u.topology AS owner,
       ARRAY(SELECT COALESCE(c.metadata ->> 'next_since', c.metadata ->> 'end')::bigint FROM txbatch.consumed c WHERE c.topology = t.topology AND c.stream = s.key
              UNION
             SELECT e.cut::bigint
               FROM txbatch.batch b
              CROSS JOIN LATERAL (SELECT b.metadata -> 'streams' -> s.key -> 'partitions' -> (s.value ->> 'state') AS range) p
              CROSS JOIN LATERAL (VALUES (p.range ->> 'start'), (p.range ->> 'end'), (p.range ->> 'since'), (p.range ->> 'next_since')) e (cut)
              WHERE b.topology = t.topology AND b.status IN ('planned', 'emitted') AND e.cut IS NOT NULL) AS needs,
       ARRAY(SELECT (b.metadata -> 'streams' -> s.key -> 'partitions' -> (s.value ->> 'state') ->> 'start')::bigint
               FROM txbatch.batch b
              WHERE b.topology = t.topology AND b.status IN ('planned', 'emitted')
                AND (b.metadata -> 'streams' -> s.key -> 'partitions' -> (s.value ->> 'state') ->> 'start') IS NOT NULL) AS opened,
       COALESCE(s.value ->> 'emit' = 'final', false) AS between
  FROM txbatch.topology t
 CROSS JOIN LATERAL json_each(t.source) s
  LEFT JOIN txbatch.state u ON u.state = s.value ->> 'state'
 WHERE t.source IS NOT NULL AND s.value ->> 'spout' = 'StateSpout' ORDER BY 1, 2;

-- look_up_in --
-- The topologies of which a batch was planned to look a state up.
SELECT DISTINCT topology FROM txbatch.batch WHERE metadata -> 'as_of' -> :state IS NOT NULL ORDER BY 1;
