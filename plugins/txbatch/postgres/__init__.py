"""The ledger and its states in PostgreSQL, through SQLAlchemy and psycopg2.

The transactions of the ledger are in `ledger`, `plans`, `commit`, `aborts`. The rooms below, from the ground up: `database`,
`tables` and `state`, `schema`, `apart` and `upstream`, `reading` and `corrections`.
"""
