"""States of the ledger as sources of other topologies (R26).

Read `upstream`, `as_of`, then `closed_sessions`.
"""
