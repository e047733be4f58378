"""What brings a run's batch to its commit.

Read `steps`, the four steps of a batch, then `advance`, a run's way through them, with `lease`, and `runner`, which does all
four in this process. Several batches: `bulk`, `pipeline`, `follow`, `shared_emission`; the names of their runs are in
`run_names`, what a killed call left in `unfinished`, how far a call is in `progress`. Corrections: `rebuild`, `retention`
with `window_retention`, `verify`.
"""
