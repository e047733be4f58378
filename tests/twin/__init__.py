"""What only tests ask of the ledger's twin in memory: to change a definition, to rebuild, to fold what is old, to let
windows leave.

Read `asked`, `definition_changes`, `rebuild`, `retention`, `window_retention`; each but the first is the twin of a module of
`postgres.corrections`.
"""
