"""The commands that only read: the ledger, the states and their past.

`status`, `batches`, `query`, `ask`, `why`, `as_of`, `psql`.
"""
