"""New values: a table that each commit fills with what it changed in a state, in the transaction of the commit (R10).

Its columns are those of `report.changes_<state>`: keys, what became of each, values before and after, the txid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txbatch.core.errors import SchemaMismatch


@dataclass(frozen=True, slots=True)
class NewValuesTable:
    """A table of the ledger's database, which is the user's own."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


def changed(
    key: Sequence[Any], before: Sequence[Any] | None, after: Sequence[Any] | None, txid: int
) -> tuple[Any, ...] | None:
    """Return the row of a key whose values were finished; None where nothing changed.

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
    """SchemaMismatch for a table that lacks a column, or has it with another type, and how to mend it."""
    for name, type_ in expected.items():
        if there.get(name) != type_:
            has = f"has {name!r} as {there[name]}" if name in there else f"has no {name!r}"
            how = "ALTER COLUMN" if name in there else "ADD COLUMN"
            raise SchemaMismatch(
                f"table {table} {has}, of what is changed it would be {type_}: ALTER TABLE {table} {how} "
                f'"{name}" {"TYPE " * (name in there)}{type_}, or name another table'
            )
