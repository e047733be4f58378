"""Every decision of the protocol, and the ports below a run.

Read `ledger`, `fence`, `decisions`, `commit`, `coordinator`, `planning` in order; `ports` has the ports besides the ledger.
Then the extras of a batch: `restate`, `event_time` (how far watermarks are), `window_closing`, `record_numbers`, `skip`,
`lookback` (late records), `gone_files`.
Several batches by one job are in `bulk` and `bulk_size`, the messages of a run in `advice` and `interval_warnings`.
"""
