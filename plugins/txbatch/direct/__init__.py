"""The engine for operations in Python: the same operations as in `spark/`, in this process.

Read `emitter`, `operations`, `functions`, `within_batch`; then `appended`, `sessions`, `state_query`; `queries` answers
query streams.
"""
