"""What only tests ask of the ledger's twin in memory: to rebuild, to fold what is old, to let windows leave.

Read `rebuild`, `retention`, `window_retention`; each is the twin of a module of `postgres.corrections`.
"""
