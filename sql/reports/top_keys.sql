-- The keys with the highest counts, and the batch that last changed each.
-- There once jobs/word_count.py has run (else: relation "report.word_count" does not exist).
-- To change: the state's view, its key and value, how many.
--     bin/txbatch psql -f sql/reports/top_keys.sql
SELECT word, count, txid AS last_changed_by
  FROM report.word_count
 ORDER BY count DESC, word
 LIMIT 20;
