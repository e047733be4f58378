"""The engine for operations in Python: the same operations as in `spark/`, in this process.

Read `emitter`, `operations`, `functions`, `batch_operations`; then `append`, `sessions`, `look_up`; `queries` answers
query streams.
"""
