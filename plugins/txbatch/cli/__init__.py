"""The command of txbatch, a module for each command.

`main` has the group and the order of its commands. What commands share: `arguments`, `database`, `printing`,
`progress`, `cron`, `old_spelling`. The commands: `run`, `follow`, `plan`, `status`, `ask`, `history`, `abort`, `restate`,
`verify`, `retention`, `change`, `rebuild`, `grants`, `drop`, `explain`, `project`.
"""
