"""Ledger and state in PostgreSQL, through SQLAlchemy and psycopg2."""
