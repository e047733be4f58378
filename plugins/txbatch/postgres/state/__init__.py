"""Changes of a state by a commit: the COPY, the MERGE, the contributions.

Read `writer`, `copy_in`, `statements`, `folds`; then `python_merge`, `refold`, `new_values`.
"""
