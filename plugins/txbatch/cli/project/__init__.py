"""The commands for a project and its stack.

`project`; `starter` makes a project, `doctor` checks it, with its `dag_files` and `sources`.
"""
