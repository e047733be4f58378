"""The ledger and its states in PostgreSQL, through SQLAlchemy and psycopg2.

The transactions of `txbatch.ledger` stand on `rows`, with `plans`; `ledger` has all else. The rooms below: `database`,
`tables` and `state`, `schema`, `apart` and `upstream`, `reading` and `corrections`.
"""
