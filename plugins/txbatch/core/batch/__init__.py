"""All that is stored of a batch as JSON.

Read `transaction`, `plan`, `manifest`, `heartbeat`, `staging` in this order; then `loaded`, `changes`, and `apart` for
states in another database (R21).
"""
