"""States as the sources of other topologies (R26).

Read `ranges`, `upstream`, `readers`; then `closings` and `closed_sessions` for windows that close, and `look_ups`.
"""
