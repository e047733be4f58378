-- What is being worked on now, for how long, by which run, and whether that run still shows signs of life.
-- To change: nothing; it shows all topologies, oldest first.
--     bin/txbatch psql -f sql/reports/batches_in_flight.sql
SELECT topology, txid, status, fence AS attempts, date_trunc('second', clock_timestamp() - created_at) AS age,
       lease_run AS run, lease_until > clock_timestamp() AS alive
  FROM txbatch.batch
 WHERE status IN ('planned', 'emitted')
 ORDER BY created_at, topology, txid;
