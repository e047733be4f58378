"""States of the ledger as sources of other topologies (R26).

Read `upstream`, `cuts`, then `closed_sessions`.
"""
