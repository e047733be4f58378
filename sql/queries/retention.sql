-- Named statements of retention (R22). See ledger.sql for the form.

-- final_txids --
-- The committed txids below the lowest that is open, oldest first, and whether they were committed so long ago.
SELECT txid, committed_at <= clock_timestamp() - make_interval(secs => :seconds) AS old FROM txbatch.batch b
 WHERE topology = :topology AND status = 'committed'
   AND NOT EXISTS (SELECT FROM txbatch.batch o WHERE o.topology = b.topology AND o.txid < b.txid AND o.status IN ('planned', 'emitted'))
 ORDER BY txid;

-- unfolded_versions --
-- The committed versions above the horizon and up to a txid, and all restates that came later.
SELECT b.position, b.txid, b.replaced_by FROM txbatch.batch b
 WHERE topology = :topology AND status = 'committed' AND txid > :after AND (txid <= :wanted OR kind = 'restate') ORDER BY txid;

-- pending_restates --
-- The restates in flight, and the positions that they are going to replace.
SELECT txid, position FROM txbatch.batch
 WHERE topology = :topology AND kind = 'restate' AND status IN ('planned', 'emitted');

-- raise_horizon --
-- Contributions up to this txid are folded, but for those that a later restate has replaced or one in flight refers to.
UPDATE txbatch.state SET horizon = GREATEST(horizon, :horizon) WHERE topology = :topology AND contributions;

-- states_with_contributions --
-- The states of a topology that may be folded.
SELECT state, columns, horizon FROM txbatch.state WHERE topology = :topology AND contributions ORDER BY state;

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
