"""The engine for operations in Python: runs the operations of `spark/` in the calling process, without Spark.

Read `emitter`, `operations`, `functions`, `batch_operations`; then `append`, `sessions`, `look_up`; `queries` answers
query streams.
"""
