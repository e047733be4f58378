"""The stored definition of a topology, and the consequences of a change (R23).

Read `stored`, `digest`, `changes`, `redefinition`, `value_columns`, `renames`, `checks`; then `keep_policy` and `job_rules`.
"""
