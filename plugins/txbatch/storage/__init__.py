"""Attempt folders: what an emit attempt is told and what it wrote. No Spark, no PostgreSQL.

Read `folder`, `staging`, `parquet` in this order; then `exports`, `late`, `links`, `leftovers`. Files of a state:
`parquet_files`.
"""
