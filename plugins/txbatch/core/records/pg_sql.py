"""Texts in SQL of PostgreSQL. Its names and types: see `postgres.database.expressions`."""

from __future__ import annotations


def pg_text(text: str) -> str:
    """Return a string literal of PostgreSQL, which means the same whatever a session says of backslashes."""
    quoted = text.replace("'", "''")
    return "E'" + quoted.replace("\\", "\\\\") + "'" if "\\" in text else f"'{quoted}'"
