"""The command of txbatch, a module for each command.

`main` has the group and the order of its commands. What commands share: `arguments`, `database`, `printing`,
`progress`, `cron`, `follow`. The commands: `run`, `plan`, `status`, `ask`, `history`, `abort`, `restate`, `verify`,
`retention`, `change`, `rebuild`, `grants`, `drop`, `project`.
"""
