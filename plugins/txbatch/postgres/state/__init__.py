"""How a commit changes a state: the COPY, the MERGE, the contributions.

Read `state_writer`, `csv_stream`, `statements`, `folds`; then `by_python`, `refold`, `new_values`.
"""
