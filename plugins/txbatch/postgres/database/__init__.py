"""Connections to PostgreSQL, its statements and its migrations.

Read `transaction`, `on_connection`, `engine` and `queries`; then `driver_errors`, `url`, `connections`, `pooler`,
`expressions`, `functions`, `generations`, `run_locks`, `reach`, `psql`; `migrate`, `warehouse_migrations`, `grants`.
"""
