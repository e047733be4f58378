"""Bring a run's batch to its commit.

Read `steps`, the four steps of a batch, with `failures`, why an attempt failed; then `advance`, a run's way through the
steps, with `lease`, and `runner`, all four steps in this process. Several batches: `bulk`, `pipeline`, `follow`,
`shared_emission`. Names of runs are in `run_names`, unfinished batches of killed calls in `unfinished`, the progress of a
call in `progress`, late records in `look_back`.
Corrections: `replaced`, `giving_up`, `rebuild`, `retention` with `window_retention`, `verify` with `verify_ahead`.
"""
