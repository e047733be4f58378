"""Connections to PostgreSQL, its statements and its migrations.

Read `engine` and `queries`; then `url`, `connections`, `pooler`, `expressions`, `functions`, `generations`, `run_locks`,
`reach`, `psql`; `migrate`, `warehouse_migrations`, `grants`.
"""
