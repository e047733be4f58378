"""New values: a table for a state's changes, filled by each commit in the transaction of the commit (R10).

The columns are the columns of `report.changes_<state>`: keys, the kind of change, values before and after, the txid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txbatch.core.errors import SchemaMismatch


@dataclass(frozen=True, slots=True)
class NewValuesTable:
    """A user's own table in the ledger's database."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


def changed(
    key: Sequence[Any], before: Sequence[Any] | None, after: Sequence[Any] | None, txid: int
) -> tuple[Any, ...] | None:
    """Return the row of a key, from finished values before and after; None if nothing changed.

    >>> changed(["dog"], [1], [3], 7), changed(["dog"], None, [1], 7), changed(["dog"], [1], [1], 7)
    (('dog', 'changed', 1, 3, 7), ('dog', 'added', None, 1, 7), None)
    """
    if before == after:
        return None
    change = "added" if before is None else "removed" if after is None else "changed"
    width = len(before or after or ())
    pairs = zip(before or [None] * width, after or [None] * width, strict=True)
    return (*key, change, *(each for pair in pairs for each in pair), txid)


def check_types(table: NewValuesTable, there: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Raise SchemaMismatch, with the statement that mends the table, if a column is missing or of another type."""
    for name, type_ in expected.items():
        if there.get(name) != type_:
            has = f"has {name!r} as {there[name]}" if name in there else f"has no {name!r}"
            how = "ALTER COLUMN" if name in there else "ADD COLUMN"
            raise SchemaMismatch(
                f"table {table} {has}, of what is changed it would be {type_}: ALTER TABLE {table} {how} "
                f'"{name}" {"TYPE " * (name in there)}{type_}, or name another table'
            )
