-- What the last committed batch changed: per key what it contributed, the value before and the value now. Of a restate that is the
-- difference to what it replaced, as long as that is there: a rebuild and retention take it away.
-- There once jobs/word_count.py has run (else: relation "report.word_count_changes" does not exist).
-- To change: the state's views, the topology's name, the key and the value, how many.
--     bin/txbatch psql -f sql/reports/keys_changed_by_last_batch.sql
WITH last AS (
    SELECT max(txid) AS txid FROM report.batches WHERE topology = 'word_count' AND status = 'committed' AND kind <> 'skip'
), changed AS (
    SELECT c.word, sum(CASE WHEN c.txid = l.txid THEN c.count ELSE -c.count END) AS contributed, l.txid
      FROM last l JOIN report.word_count_changes c ON c.txid = l.txid OR c.replaced_by = l.txid
     GROUP BY c.word, l.txid
)
SELECT c.word, c.contributed, NULLIF(COALESCE(n.count, 0) - c.contributed, 0) AS before, n.count AS now, c.txid
  FROM changed c LEFT JOIN report.word_count n ON n.word = c.word
 WHERE c.contributed <> 0
 ORDER BY abs(c.contributed) DESC, c.word
 LIMIT 50;
