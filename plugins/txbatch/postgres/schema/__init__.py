"""The tables, views and functions of a state.

Read `state_tables`, `report_views`, `past`, `one_pass`; then `own_past`, `session_past`, `sessions`, `getter`,
`versions`, `closings`, `kept_reports`, `past_reports`.
"""
