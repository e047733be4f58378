"""Changes of a state by a commit: the COPY, the MERGE, the contributions.

Read `writer`, `copy_in`, `statements` over `staged_statements` over `table_definitions`, `folds`; then `python_merge`,
`refold`, `new_values`, and `take_back` of states apart.
"""
