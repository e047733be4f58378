"""Spouts of txbatch. Planning needs the standard library only; reading imports pyspark inside functions.

`partitioned_log`, `log_records`, `interval`, `file`, `fixed_batch`, `state_spout`, `static_files`; `postgres_table`,
`postgres_changing` and `postgres_interval`, on the room `tables`; `kafka`, on the room `topics`; `differing` finds files changed
since a batch read the files.
"""
