"""States as the sources of other topologies (R26).

Read `ranges`, `upstream`, `readers`; then `closed_windows` and `closed_sessions` for windows that close, then `look_ups`.
"""
