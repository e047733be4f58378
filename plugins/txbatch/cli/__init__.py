"""The command line of txbatch, with a module for each command.

`main` has the group and the order of its commands. Shared modules: `arguments`, `database`, `printing`, `differences`,
`progress`, `cron`, `old_spelling`. The commands: `run`, `follow`, `plan`, `reading`, `abort`, `restate`, `verify`,
`retention` (gc), `change`, `rebuild`, `grants`, `drop`, `source`, `explain`,
`docs`, `project`.
"""
