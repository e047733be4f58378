"""The tables, views and functions of a state.

Read `state_tables`, `report_views`, `history`, `one_pass`; then `python_history`, `session_history`, `sessions`, `getter`,
`versions`, `closings`, `kept_reports`, `replaced_reports`.
"""
