"""The values of a batch, stored as JSON.

Read `transaction`, `stream_plan`, `plan` with `plan_json`, `emitted`, `manifest` with `manifest_json`, `heartbeat`,
`staging` in order; then `loaded`, `planned_files`, `planned_table`, `planned_ranges`, `holes`, `came_late`, and `apart` for
states in another database (R21).
"""
