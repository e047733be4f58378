"""The columns of a table by name, held against the fields of a job: which type a field takes, and how the value is selected.

>>> numeric = Column("amount", "numeric", "numeric(12,2)", 12, 2)
>>> misfit(Field("amount", "decimal(12,2)"), numeric, None), misfit(Field("amount", "decimal(9,2)"), numeric, None)
(None, 'numeric(12,2) does not fit decimal(9,2)')
>>> selected(Field("at", "timestamp"), Column("at", "timestamp", "timestamp without time zone"), "Europe/Oslo")
'("at" AT TIME ZONE \\'Europe/Oslo\\')'
"""

from __future__ import annotations

from dataclasses import dataclass

from txbatch.core.records.fields import Field, decimal_digits
from txbatch.spouts.tables.windows import literal, quoted

_INTEGER_DIGITS = {"int2": 5, "int4": 10, "int8": 19}
# Types of PostgreSQL, by their short names, that a field of a type takes.
_TAKES = {
    "smallint": ("int2",),
    "int": ("int2", "int4"),
    "bigint": ("int2", "int4", "int8"),
    "float": ("float4",),
    "double": ("float4", "float8"),
    "boolean": ("bool",),
    "date": ("date",),
    "timestamp": ("timestamptz",),
    "binary": ("bytea",),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: the short name of its type, of a domain's base, and the name for people.

    A numeric with limits has `precision` and `scale`. `nullable`: a row may have no value.
    """

    name: str
    type: str
    shown: str
    precision: int | None = None
    scale: int = 0
    nullable: bool = True


def misfit(field: Field, column: Column, timezone: str | None) -> str | None:
    """Return why a field does not take the values of a column; None if the field takes the values, or each value decides."""
    if field.type == "string":
        return None
    if column.type in _TAKES.get(field.type, ()):
        return None
    told = f"{column.shown} does not fit {field.type}"
    if field.type == "timestamp" and column.type == "timestamp":
        return None if timezone else f"{column.shown} says no moment: give the spout timezone=, or declare a string"
    if (digits := decimal_digits(field.type)) is None:
        return told
    if column.type == "numeric":
        limits = None if column.precision is None else (column.precision, column.scale)
    elif column.type in _INTEGER_DIGITS:
        limits = (_INTEGER_DIGITS[column.type], 0)
    else:
        return told
    if limits is None:
        return None
    return told if limits[1] > digits[1] or limits[0] - limits[1] > digits[0] - digits[1] else None


def selected(field: Field, column: Column, timezone: str | None) -> str:
    """Return the expression that selects a field."""
    name = quoted(field.name)
    if field.type == "timestamp":
        return expression(column, timezone)
    if field.type == "double" and column.type == "float4":
        return f"{name}::float8"  # else the shortest text of the smaller type is read, another number
    return name


def expression(column: Column, timezone: str | None) -> str:
    """Return the moment of a column of times, or the column itself; `timezone` is the zone of a time without one."""
    name = quoted(column.name)
    zoned = column.type == "timestamp" and timezone is not None
    return f"({name} AT TIME ZONE {literal(timezone or '')})" if zoned else name
