"""New values: a table that each commit fills with what it changed in a state, in the transaction of the commit (R10).

Its columns are those of `report.changes_<state>`: keys, what became of each, values before and after, the txid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txbatch.core.errors import DefinitionError, SchemaMismatch
from txbatch.core.records.fields import checked_name

if TYPE_CHECKING:
    from txbatch.core.aggregates.merge import Partial
    from txbatch.core.state.state import State
    from txbatch.core.topology.persistent_aggregate import PersistentAggregate

# Schemas that the ledger makes; those of generations begin so.
_OURS = ("txbatch", "report", "state", "contribution", "pg_", "information_schema")


@dataclass(frozen=True, slots=True)
class NewValuesTable:
    """A table of the ledger's database, which is the user's own."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


def checked_table(state: State, table: str) -> NewValuesTable:
    """Return the table that is named; DefinitionError for one that the state's commit cannot fill, or that is the ledger's."""
    of = f"state {state.name!r}: new_values_into({table!r})"
    schema, dot, name = str(table).partition(".")
    if not dot or "." in name:
        raise DefinitionError(
            f"{of} names no table; write its schema and its name, such as 'audit.{state.name}_changes'"
        )
    if schema.startswith(_OURS):
        raise DefinitionError(f"{of}: the schema {schema!r} is the ledger's or the server's; name one of your own")
    if state.database is not None:
        raise DefinitionError(f"{of}: the state is kept apart, in {state.database!r}, which is committed by itself")
    return NewValuesTable(checked_name(schema, "schema"), checked_name(name, "table"))


def check_tables(states: Iterable[State]) -> None:
    """DefinitionError where two states write into one table, which then says of no row whose it is."""
    taken: dict[NewValuesTable, str] = {}
    for state in states:
        if state.new_values is not None:
            other = taken.setdefault(state.new_values, state.name)
            if other != state.name:
                raise DefinitionError(
                    f"states {other!r} and {state.name!r} write their new values into one table, {state.new_values}; name two"
                )


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


def finished(aggregate: PersistentAggregate, partial: Partial | None) -> list[Any] | None:
    """Return a key's values as reports show them; None for no such key."""
    if partial is None:
        return None
    own = [[n for n, column in enumerate(aggregate.columns) if column.value == name] for name in aggregate.aggregates]
    made = zip(aggregate.aggregates.values(), own, strict=True)
    return [each.finish(tuple(partial[n] for n in at)) for each, at in made]


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
