"""What would be: nothing of it is stored.

`plan`, with what it says of the next batch in `explain`, of a restate in `plan_restate` and of a rebuild in
`plan_rebuild`.
"""
