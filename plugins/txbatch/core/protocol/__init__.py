"""Every decision of the protocol, and the ports below a run.

Read `ledger`, `fence`, `decisions`, `planning`, `coordinator`, `commit` in order; `spout_coordinators` has the spouts' side of a
plan, `questions` what is asked of the ledger besides, `ports` the ports besides the ledger.
Then the extras of a batch: `restate` with `planning_again`, `event_time` (how far watermarks are), `window_closing`,
`record_numbers`, `skip`, `lookback` (late records).
Several batches by one job are in `planning_ahead`, `bulk` and `bulk_size`, the messages of a run in `advice` and
`interval_warnings`.
"""
