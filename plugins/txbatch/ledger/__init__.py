"""The transactions of a ledger, written once over the rows of a store: PostgreSQL, or the twin in memory.

`rows` is the port of a store, with `look_back_rows`; then read `questions`, without changes, and `transactions`.
"""
