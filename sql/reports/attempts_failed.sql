-- Which attempts did not count, newest first, and why: failed ones with their error; superseded ones were killed or
-- overtaken by a newer attempt of the same batch. What became of the batch stands beside it.
-- To change: how many.
--     bin/txbatch psql -f sql/reports/attempts_failed.sql
SELECT a.topology, a.attempt, a.status, date_trunc('second', a.started_at) AS started_at,
       date_trunc('second', a.duration) AS duration, a.run, b.status AS batch, a.error
  FROM report.attempts a
  JOIN report.batches b USING (topology, txid)
 WHERE a.status IN ('failed', 'superseded')
 ORDER BY a.started_at DESC, a.topology, a.attempt
 LIMIT 50;
