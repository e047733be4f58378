-- How a state grew: per committed batch, as it counts today, its records, the keys it touched, those it brought, and all keys since.
-- There once jobs/word_count.py has run (else: relation "report.word_count_changes" does not exist).
-- To change: the state's view of changes and its keys, the topology's name.
--     bin/txbatch psql -f sql/reports/growth_per_batch.sql
WITH first_seen AS (
    SELECT word, min(position) AS txid FROM report.word_count_changes WHERE replaced_by IS NULL GROUP BY word
), brought AS (
    SELECT txid, count(*) AS new_keys FROM first_seen GROUP BY txid
)
SELECT b.position AS txid, b.committed_at, b.records, (b.keys ->> 'word_count')::bigint AS keys,
       COALESCE(n.new_keys, 0) AS new_keys,
       sum(COALESCE(n.new_keys, 0)) OVER (ORDER BY b.position)::bigint AS keys_in_all,
       sum(b.records) OVER (ORDER BY b.position)::bigint AS records_in_all
  FROM report.batches b
  LEFT JOIN brought n ON n.txid = b.position
 WHERE b.topology = 'word_count' AND b.status = 'committed'
   AND b.replaced_by IS NULL
 ORDER BY b.position;
