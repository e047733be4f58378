"""The kinds of state and the values that a state keeps.

Read `state`, then `update`, the update table (R9), and `fold` (R17). The extras of a state are in `append`, `keep`,
`pruned`, `new_values`, `files`, `checks`.
"""
