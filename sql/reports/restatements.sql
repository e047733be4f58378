-- What was counted again: who asked for it and why, which run did it, records before and after, keys whose values were
-- computed anew. The newest first; what is not committed yet, or was aborted, has its status.
-- To change: nothing; it shows all topologies.
--     bin/txbatch psql -f sql/reports/restatements.sql
SELECT topology, position, replaced_txid AS was_txid, txid AS now_txid, status, requested_by, reason, run,
       date_trunc('second', committed_at) AS committed_at, records_before, records, keys, replaced_by
  FROM report.restatements
 ORDER BY COALESCE(committed_at, created_at) DESC, topology, txid
 LIMIT 50;
