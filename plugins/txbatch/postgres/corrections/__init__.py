"""Corrections of committed batches and of a topology's past, as in `core.corrections`.

`definition_changes`, `renamed_plans`; `rebuild`, `swap`, `rebuild_preview`; `restate_preview`; `retention`,
`window_retention`; `verify`, `audit`.
"""
