"""What statements are made of: names, which SQLAlchemy's PostgreSQL dialect quotes, types, and how partials merge."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy
from sqlalchemy.dialects import postgresql

from txbatch.core.aggregator import Merge
from txbatch.core.fields import FLOATING_TYPES
from txbatch.core.persistent_aggregate import ValueColumn

# These statements are executed without parameters, so a percent sign in a name must not be doubled.
_DIALECT = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]
_PREPARER = _DIALECT.identifier_preparer
_TYPES = {
    "string": "text",
    "int": "integer",
    "double": "double precision",
    "float": "real",
    "timestamp": "timestamptz",
    "binary": "bytea",
}


def quoted(name: str) -> str:
    """A PostgreSQL identifier."""
    return _PREPARER.quote_identifier(name)


def literal(text: str) -> str:
    """A string in SQL."""
    return str(sqlalchemy.literal(text).compile(dialect=_DIALECT, compile_kwargs={"literal_binds": True}))


def sql_type(type_: str) -> str:
    """The PostgreSQL type of a field's type."""
    return _TYPES.get(type_, type_.replace("decimal", "numeric"))


def column_type(type_: str) -> str:
    """The same for a column: text compares by its bytes, as Spark does."""
    return sql_type(type_) + (' COLLATE "C"' if type_ == "string" else "")


def listed(parts: Iterable[str]) -> str:
    """Parts of SQL, with commas between them."""
    return ", ".join(parts)


MERGES = {
    Merge.ADD: "COALESCE({0} + {1}, {0}, {1})",
    Merge.LEAST: "LEAST({0}, {1})",
    Merge.GREATEST: "GREATEST({0}, {1})",
}
# There is no min or max of boolean, nor of bytea before PostgreSQL 18; every type has an order.
AGGREGATES = {
    Merge.ADD: "sum({0})",
    Merge.LEAST: "(array_agg({0} ORDER BY {0}) FILTER (WHERE {0} IS NOT NULL))[1]",
    Merge.GREATEST: "(array_agg({0} ORDER BY {0} DESC) FILTER (WHERE {0} IS NOT NULL))[1]",
}


def total_sql(column: ValueColumn) -> str:
    """The total of a partial column as text: the sum where it is exact, how many are true, else how many are not null."""
    if column.partial.type == "boolean":
        return f"(count(*) FILTER (WHERE {quoted(column.name)}))::text"
    exact = column.partial.merge is Merge.ADD and not is_approximate(column)
    return f"{'sum' if exact else 'count'}({quoted(column.name)})::text"


def is_approximate(column: ValueColumn) -> bool:
    return column.partial.merge is Merge.ADD and column.partial.type in FLOATING_TYPES
