"""What is done to committed batches and to the past of a topology, as in `core.corrections`.

`definition_changes`, `renamed_plans`; `rebuild`, `swap`, `rebuild_preview`; `restate_preview`; `retention`,
`window_retention`; `verify`, `audit`.
"""
