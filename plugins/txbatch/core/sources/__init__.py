"""Spouts: what a batch reads, decided without Spark.

`spout`, `partition_checks`, `labels`, then `batch_spout`; `snapshots` are PostgreSQL's, of which a table's plans are made.
"""
