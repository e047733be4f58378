"""Spouts: what a batch reads, decided without Spark.

`spout`, planning, and `emitter`, reading; the checks `partition_checks` and `plan_checks`, and the options of a spout,
`spout_options`; `identity`, `labels`, then `batch_spout`; `by_time` has the checks of spouts by time, `looking_back` spouts
with late records;
`snapshots` are PostgreSQL's: the plans of a table have them.
"""
