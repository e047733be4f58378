-- What is being worked on now, for how long, by which run, and whether that run still shows signs of life.
-- To change: nothing; it shows all topologies, oldest first.
--     bin/txbatch psql -f sql/reports/batches_in_flight.sql
SELECT topology, txid, status, attempts, date_trunc('second', clock_timestamp() - created_at) AS age, run,
       lease_live AS alive
  FROM report.batches
 WHERE status IN ('planned', 'emitted')
 ORDER BY created_at, topology, txid;
