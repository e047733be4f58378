-- What the last committed batch changed: per key the value before and the value now, also where it restated an earlier one.
-- There once jobs/word_count.py has run (else: function report.changes_word_count(bigint, bigint) does not exist).
-- To change: the function of the state's changes, the topology's name, the key and the value, how many.
--     bin/txbatch psql -f sql/reports/keys_changed_by_last_batch.sql
SELECT c.word, COALESCE(c.count_after, 0) - COALESCE(c.count_before, 0) AS contributed, c.count_before AS before,
       c.count_after AS now, c.txid
  FROM (SELECT max(txid) AS txid FROM report.batches WHERE topology = 'word_count' AND status = 'committed') b
 CROSS JOIN LATERAL report.changes_word_count(b.txid - 1, b.txid) c
 ORDER BY abs(COALESCE(c.count_after, 0) - COALESCE(c.count_before, 0)) DESC, c.word
 LIMIT 50;
