"""All that is stored of a batch as JSON.

Read `transaction`, `plan`, `manifest`, `heartbeat`, `staging` in this order; then `loaded`, `planned_files`, and `apart` for
states in another database (R21).
"""
