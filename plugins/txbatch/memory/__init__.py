"""The ledger's twin in memory, for tests and for learning: the same protocol without a database.

Read `runner`, `application`, `ledger`, `rows`, `tables`, `stored`, `update`, `staging`; then `apart`, `upstream`,
`closed_sessions`, `event_time`, `came_late`, `run_locks`; `ask`. Parts of the twin for txbatch's own tests, to change a
definition, to rebuild and to retain, are in tests/twin/.
"""
