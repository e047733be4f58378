"""The parts of statements: names, quoted by SQLAlchemy's PostgreSQL dialect, types, and totals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, assert_never

from sqlalchemy.dialects import postgresql

from txbatch.core.records.fields import SIMPLE_TYPES, array_of
from txbatch.core.records.sql import pg_text as pg_text

if TYPE_CHECKING:
    from txbatch.core.topology.persistent_aggregate import ValueColumn

# These statements are executed without parameters, so a percent sign in a name must not be doubled.
_DIALECT = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]
_PREPARER = _DIALECT.identifier_preparer


def pg_name(name: str) -> str:
    """Return a name as a quoted identifier of PostgreSQL."""
    return _PREPARER.quote_identifier(name)


def select_all(state: str) -> str:
    """Return the SELECT of a state's report as people write it: the name is quoted only if necessary."""
    return f"SELECT * FROM report.{_PREPARER.quote(state)}"


def sql_type(type_: str) -> str:
    """Return the PostgreSQL type of a field's type or an array's type."""
    if (element := array_of(type_)) is not None:
        return f"{sql_type(element)}[]"
    return SIMPLE_TYPES[type_].postgres if type_ in SIMPLE_TYPES else type_.replace("decimal", "numeric")


def column_type(type_: str) -> str:
    """Return the PostgreSQL type of a column: text compares by bytes, as in Spark."""
    return sql_type(type_) + (' COLLATE "C"' if type_ in ("string", "array<string>") else "")


def listed(parts: Iterable[str]) -> str:
    """Return parts of SQL with commas between them."""
    return ", ".join(parts)


def total_sql(column: ValueColumn) -> str:
    """Return the total of a partial column (R7), as text."""
    from txbatch.core.aggregates.merge import Total

    name = pg_name(column.name)
    match column.partial.total:
        case Total.SUM:
            total = f"sum({name})"
        case Total.TRUE:
            total = f"(count(*) FILTER (WHERE {name}))"
        case Total.PRESENT:
            total = f"count({name})"
        case Total.ELEMENTS:
            total = f"COALESCE(sum(cardinality({name})), 0)"
        case other:
            assert_never(other)
    return f"{total}::text"


def escape_percent(sql: str) -> str:
    """Return SQL with percent signs doubled, for a statement with parameters, where a percent sign would begin a parameter."""
    return sql.replace("%", "%%")
