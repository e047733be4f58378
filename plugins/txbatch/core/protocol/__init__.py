"""Every decision of the protocol, and the ports that a run stands on.

Read `ledger`, `fence`, `decisions`, `coordinator`, `planning` in this order; `ports` has the other ports. Then what a
batch may have besides: `restate`, `event_time` (how far watermarks are), `window_closing`, `record_numbers`, `skip`;
several batches by one job: `bulk`, `bulk_size`.
What a run says: `advice`, `interval_warnings`.
"""
