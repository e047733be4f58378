"""What is done to committed batches and to the past of a topology, as in `core.corrections`.

`redefinitions`, `moves`, `renamed_plans`; `rebuilds`, `swap`, `rebuild_preview`; `preview`; `retention`,
`keep_windows`; `verifier`, `auditor`.
"""
