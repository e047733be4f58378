"""Every decision of the protocol, and the ports that a run stands on.

Read `ledger`, `protocol`, `coordinator`, `planning` in this order; `application` has the other ports. Then what a batch
may have besides: `restate`, `event_time`, `record_numbers`, `given_up`; several batches by one job: `fused`, `weight`.
What a run says: `advice`, `interval_warnings`.
"""
