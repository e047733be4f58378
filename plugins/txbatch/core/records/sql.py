"""Names and texts in Spark SQL, and texts in SQL of PostgreSQL. For names in PostgreSQL see `postgres.database.expressions`."""

from __future__ import annotations


def spark_name(name: str) -> str:
    """Return an identifier of Spark SQL.

    >>> spark_name("unit price")
    '`unit price`'
    """
    return "`" + name.replace("`", "``") + "`"


def spark_text(text: str) -> str:
    """Return a string literal of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def pg_text(text: str) -> str:
    """Return a string literal of PostgreSQL with the same meaning under every session setting of backslashes."""
    quoted = text.replace("'", "''")
    return "E'" + quoted.replace("\\", "\\\\") + "'" if "\\" in text else f"'{quoted}'"
