"""The SQL by which a commit writes what it changes in a state into a table: a look before it, and one after it (R10).

Every name is pg_name; the only values are txids, which are integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from txbatch.core.new_values import NewValuesTable, check_types
from txbatch.core.persistent_aggregate import PersistentAggregate
from txbatch.core.state import changes_columns
from txbatch.postgres.expressions import listed, pg_name, pg_text
from txbatch.postgres.generations import CURRENT
from txbatch.postgres.queries import query
from txbatch.postgres.statements import INDEX_PROBES, StateStatements

BEFORE = "pg_temp.before"


@dataclass(frozen=True, slots=True)
class NewValues:
    """The statements of one commit; none of them where the state has no such table, or another generation is written."""

    statements: StateStatements

    @property
    def table(self) -> NewValuesTable | None:
        """The table that is filled."""
        return self.statements.aggregate.state.new_values if self.statements.generation == CURRENT else None

    def before(self, keys: str) -> Sequence[str]:
        """Look at the keys that a table has, as they are: what runs before the state is changed."""
        if self.table is None:
            return ()
        own = self.statements.keys
        named = [f"e.{key} AS k{n}" for n, key in enumerate(own)]
        values = [f"{sql} AS v{n}" for n, sql in enumerate(self._values)]
        distinct = f"(SELECT DISTINCT {listed(own)} FROM {keys} ORDER BY {listed(own)} OFFSET 0) e"
        same = " AND ".join(f"s.{key} = e.{key}" for key in own)
        looked = f"SELECT {listed([*named, f'{_THERE} AS there', *values])} FROM {distinct} LEFT JOIN {self._state} s ON {same}"
        return (INDEX_PROBES, f"CREATE TEMP TABLE before ON COMMIT DROP AS {looked}")

    def after(self, txid: int) -> Sequence[str]:
        """Look at them again, and write those that changed: what runs after the state is changed."""
        if self.table is None:
            return ()
        aggregate, values = self.statements.aggregate, self._values
        keys = [f"b.k{n}" for n in range(len(aggregate.keys))]
        was = [f"b.v{n}" for n in range(len(values))]
        change = f"CASE WHEN NOT b.there THEN 'added' WHEN NOT {_THERE} THEN 'removed' ELSE 'changed' END"
        pairs = [each for pair in zip(was, values, strict=True) for each in pair]
        columns = changes_columns([key.name for key in aggregate.keys], list(aggregate.aggregates))
        same = " AND ".join(f"s.{key} = b.k{n}" for n, key in enumerate(self.statements.keys))
        return (
            INDEX_PROBES,
            f"INSERT INTO {_quoted(self.table)} ({listed(map(pg_name, columns))}) "
            f"SELECT {listed([*keys, change, *pairs, f'{txid:d}'])} FROM {BEFORE} b LEFT JOIN {self._state} s ON {same} "
            f"WHERE ({listed(['b.there', *was])}) IS DISTINCT FROM ({listed([_THERE, *values])})",
            f"DROP TABLE {BEFORE}",
        )

    @property
    def _state(self) -> str:
        """The rows that count."""
        return f"(SELECT * FROM {self.statements.state}{' WHERE counted' * self.statements.aggregate.removable})"

    @property
    def _values(self) -> list[str]:
        """The finished values of the state's row `s`; null where there is none."""
        return [f"CASE WHEN {_THERE} THEN {sql} END" for sql in finished_sql(self.statements.aggregate)]


_THERE = "(s.txid IS NOT NULL)"


def finished_sql(aggregate: PersistentAggregate) -> list[str]:
    """Return the values of the state's row `s` as reports show them."""
    return [
        each.finish_sql([f"s.{pg_name(column.name)}" for column in aggregate.columns if column.value == name])
        for name, each in aggregate.aggregates.items()
    ]


def ensure(connection: Connection, aggregate: PersistentAggregate) -> None:
    """Make the table that a state's new values go into, unless it is there; SchemaMismatch when it is another."""
    table = aggregate.state.new_values
    if table is None:
        return
    keys, values = [key.name for key in aggregate.keys], list(aggregate.aggregates)
    report = _types(connection, f"report.{pg_name(aggregate.state.name)}")
    types = [*(report[key] for key in keys), "text", *(report[value] for value in values for _ in range(2)), "bigint"]
    expected = dict(zip(changes_columns(keys, values), types, strict=True))
    if there := _types(connection, _quoted(table)):
        check_types(table, there, expected)
        return
    if not connection.execute(query("schema_exists"), {"name": pg_name(table.schema)}).scalar_one():
        connection.exec_driver_sql(f"CREATE SCHEMA {pg_name(table.schema)}".replace("%", "%%"))
    typed = listed(f"{pg_name(name)} {type_}" for name, type_ in expected.items())
    said = (
        f"What each commit changed in state {aggregate.state.name!r} of topology {aggregate.topology!r}: a row per key"
    )
    for statement in (
        f"CREATE TABLE {_quoted(table)} ({typed})",
        f"COMMENT ON TABLE {_quoted(table)} IS {pg_text(said)}",
    ):
        connection.exec_driver_sql(statement.replace("%", "%%"))


def _types(connection: Connection, relation: str) -> dict[str, str]:
    return {row.name: row.type for row in connection.execute(query("columns_of"), {"name": relation})}


def _quoted(table: NewValuesTable) -> str:
    return f"{pg_name(table.schema)}.{pg_name(table.name)}"
