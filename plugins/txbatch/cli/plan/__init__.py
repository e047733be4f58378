"""Previews: none of the planned changes is stored.

`plan`, with its text about the next batch in `explain`, about a restate in `plan_restate` and about a rebuild in
`plan_rebuild`, and of how much stays in `policy`.
"""
