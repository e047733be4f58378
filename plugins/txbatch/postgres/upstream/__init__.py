"""What the ledger tells of its states to topologies that read them (R26).

Read `upstream`, `cuts`, then `closed_sessions`.
"""
