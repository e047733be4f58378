-- What a topology was defined as, for comparison with what it is now (R23). Null: registered before it was kept; the next
-- registration fills it in.
ALTER TABLE txbatch.topology ADD COLUMN streams json;
ALTER TABLE txbatch.state ADD COLUMN streams json;

-- Which of its topology's committed txids each state has counted. Those it missed were committed while it was left out of the
-- job, or before it joined it (R23).
CREATE VIEW report.state_coverage AS
SELECT s.topology, s.state, c.since_txid, c.counts_to_txid, COALESCE(c.missed, 0) AS missed, c.missed_txids
  FROM txbatch.state s
  LEFT JOIN LATERAL (
       SELECT min(first_txid) FILTER (WHERE counted) AS since_txid, max(last_txid) FILTER (WHERE counted) AS counts_to_txid,
              (sum(txids) FILTER (WHERE NOT counted))::bigint AS missed,
              string_agg(CASE WHEN first_txid = last_txid THEN first_txid::text ELSE first_txid || '-' || last_txid END, ', '
                         ORDER BY first_txid) FILTER (WHERE NOT counted) AS missed_txids
         FROM (SELECT counted, min(txid) AS first_txid, max(txid) AS last_txid, count(*) AS txids
                 FROM (SELECT txid, counted, row_number() OVER (ORDER BY txid)
                                           - row_number() OVER (PARTITION BY counted ORDER BY txid) AS series
                         FROM (SELECT txid, keys -> s.state IS NOT NULL AS counted FROM txbatch.batch b
                                WHERE b.topology = s.topology AND status = 'committed' AND kind = 'ordinary') each) numbered
                GROUP BY counted, series) together) c ON true;

COMMENT ON VIEW report.state_coverage IS 'Which of its topology''s committed txids each state has counted, and which it missed.';
COMMENT ON COLUMN report.state_coverage.topology IS 'The topology of the state.';
COMMENT ON COLUMN report.state_coverage.state IS 'The state, reported as report.<state>.';
COMMENT ON COLUMN report.state_coverage.since_txid IS 'The first txid that it counted; null before that.';
COMMENT ON COLUMN report.state_coverage.counts_to_txid IS 'The last txid that it counted.';
COMMENT ON COLUMN report.state_coverage.missed IS 'How many committed txids of the topology it has not counted.';
COMMENT ON COLUMN report.state_coverage.missed_txids IS 'These txids, such as 1-3, 7.';
