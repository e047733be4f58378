"""Attempt folders: the assignment and the output of emit attempts. Uses neither Spark nor PostgreSQL.

Read `folder`, `staging`, `parquet` in this order; then `exports`, `late`, `links`, `leftovers`. Files of a state:
`parquet_files`.
"""
