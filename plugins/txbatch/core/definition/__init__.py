"""What the ledger stores of a topology, and what becomes of a change (R23).

Read `stored`, `changes`, `redefinition`, `renames`, `checks`; then `keep_policy` and `job_rules`.
"""
