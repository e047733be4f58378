-- Whoever waits sees until when the run that is waited for is left alone.

CREATE OR REPLACE VIEW report.waiting AS
SELECT w.topology, w.txid, w.run, w.status, h.txid AS waits_for_txid, h.lease_run AS waits_for_run,
       h.status AS waits_for_status, h.lease_until > clock_timestamp() AS lease_live,
       w.since, clock_timestamp() - w.since AS waited, h.lease_until
  FROM (SELECT b.topology, b.txid, b.lease_run AS run, b.status, a.finished_at AS since,
               (SELECT min(o.txid) FROM txbatch.batch o
                 WHERE o.topology = b.topology AND o.txid < b.txid AND o.status IN ('planned', 'emitted')) AS waits_for
          FROM txbatch.batch b
          JOIN txbatch.attempt a ON (a.topology, a.txid, a.attempt_id) = (b.topology, b.txid, b.fence)
         WHERE b.status = 'emitted'
         UNION ALL
        SELECT topology, NULL, run, 'waiting', since, txid FROM txbatch.waiting) w
  JOIN txbatch.batch h ON (h.topology, h.txid) = (w.topology, w.waits_for) AND h.status IN ('planned', 'emitted');

COMMENT ON COLUMN report.waiting.lease_until IS 'How long that run is left alone without another sign of life; it gives one every few minutes at least';
