"""Reads a batch, runs the operations and aggregates to partials, in Spark.

Read `reader`, `operations`, `aggregate` in this order. Parts of `reader`: `interval_check`, `observed_rows`, `kept_records`;
several batches in one pass: `bulk`. Parts of operations: `frames`, `casts`, `row_by_row`, `python_functions`, `state_query`,
`within_batch`. Parts of aggregates: `two_step_aggregate`, `reducers`, `own_combiners`, `sessions`, `appended`,
`driver_memory`. Then `failures`, `site_settings`, and the room `process`.
"""
