"""What the ledger tells of its states to topologies that read them (R26).

`upstream`, then `closed_sessions`.
"""
