-- What the last committed batch changed: per key its contribution, the value before and the value now.
-- There once jobs/word_count.py has run (else: relation "report.word_count" does not exist).
-- To change: the state's view and its view of changes, the key and the value, how many.
--     bin/txbatch psql -f sql/reports/keys_changed_by_last_batch.sql
SELECT word, c.count AS contributed, r.count - c.count AS before, r.count AS now, r.txid
  FROM report.word_count r
  JOIN report.word_count_changes c USING (word, txid)
 WHERE r.txid = (SELECT max(txid) FROM report.batches WHERE topology = 'word_count' AND status = 'committed')
 ORDER BY c.count DESC, word
 LIMIT 50;
