"""The SQL that writes a commit's changes of a state into a table (R10): by the result of the MERGE, or by two looks.

Every name is quoted by `pg_name`; the only values are txids, which are integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from txbatch.core.errors import PermissionDenied
from txbatch.core.state.new_values import NewValuesTable, check_types
from txbatch.core.state.state import changes_columns
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.postgres.database.expressions import listed, pg_name, pg_text
from txbatch.postgres.database.generations import CURRENT
from txbatch.postgres.database.queries import query
from txbatch.postgres.state.statements import INDEX_PROBES, StateStatements

BEFORE = "pg_temp.before"
# From PostgreSQL 18 on a MERGE returns each row as it was and as it is.
RETURNING_VERSION_MIN = 180000


@dataclass(frozen=True, slots=True)
class NewValues:
    """The statements of one commit; empty if the state has no table of new values, or if another generation is written."""

    statements: StateStatements

    @property
    def table(self) -> NewValuesTable | None:
        """The table to fill."""
        return self.statements.aggregate.state.new_values if self.statements.generation == CURRENT else None

    def returned(self, upsert: str, txid: int) -> str | None:
        """Return the upsert as a query that also fills the table, and returns the number of rows written to the state."""
        if self.table is None:
            return None
        keys = [f"new.{key} AS k{n}" for n, key in enumerate(self.statements.keys)]
        made = listed([*keys, *self._named("old", "b"), *self._named("new", "a")])
        told = self._tell(self.table, "merged", txid)
        return f"WITH merged AS ({upsert} RETURNING {made}), told AS ({told}) SELECT count(*) FROM merged"

    def before(self, keys: str) -> Sequence[str]:
        """Return the statements to run before the state is changed: read the present rows of the keys in a table."""
        if self.table is None:
            return ()
        own = listed(self.statements.keys)
        named = [f"e.{key} AS k{n}" for n, key in enumerate(self.statements.keys)]
        distinct = f"(SELECT DISTINCT {own} FROM {keys} ORDER BY {own} OFFSET 0) e"
        same = " AND ".join(f"s.{key} = e.{key}" for key in self.statements.keys)
        columns = listed([*named, *self._named("s", "b")])
        looked = f"SELECT {columns} FROM {distinct} LEFT JOIN {self.statements.state} s ON {same}"
        return (INDEX_PROBES, f"CREATE TEMP TABLE before ON COMMIT DROP AS {looked}")

    def after(self, txid: int) -> Sequence[str]:
        """Return the statements to run after the state is changed: read the rows again, and write the changed rows."""
        if self.table is None:
            return ()
        same = " AND ".join(f"s.{key} = b.k{n}" for n, key in enumerate(self.statements.keys))
        looked = (
            f"SELECT b.*, {listed(self._named('s', 'a'))} FROM {BEFORE} b LEFT JOIN {self.statements.state} s ON {same}"
        )
        return (INDEX_PROBES, self._tell(self.table, f"({looked})", txid), f"DROP TABLE {BEFORE}")

    def _tell(self, table: NewValuesTable, looked: str, txid: int) -> str:
        """Return the statement that writes the changes of keys k0..

        The values are b0.. before and a0.. after; `b` and `a` are true if the key existed.
        """
        aggregate = self.statements.aggregate
        columns = changes_columns([key.name for key in aggregate.keys], list(aggregate.aggregates))
        keys, values = [f"k{n}" for n in range(len(aggregate.keys))], range(len(aggregate.aggregates))
        change = "CASE WHEN NOT c.b THEN 'added' WHEN NOT c.a THEN 'removed' ELSE 'changed' END"
        pairs = [f"c.{then}{n}" for n in values for then in "ba"]
        was, is_ = (listed([f"c.{then}", *(f"c.{then}{n}" for n in values)]) for then in "ba")
        return (
            f"INSERT INTO {_quoted(table)} ({listed(map(pg_name, columns))}) "
            f"SELECT {listed([*keys, change, *pairs, f'{txid:d}'])} FROM {looked} c WHERE ({was}) IS DISTINCT FROM ({is_})"
        )

    def _named(self, row: str, then: str) -> list[str]:
        """Return whether a row of the state exists and is no tombstone, and the row's finished values or nulls."""
        there = f"({row}.txid IS NOT NULL{f' AND {row}.counted' * self.statements.aggregate.removable})"
        values = enumerate(finished_sql(self.statements.aggregate, row))
        return [f"{there} AS {then}", *(f"CASE WHEN {there} THEN {sql} END AS {then}{n}" for n, sql in values)]


def finished_sql(aggregate: PersistentAggregate, row: str) -> list[str]:
    """Return the values of a row of the state as in reports."""
    return [
        each.finish_sql([f"{row}.{pg_name(column.name)}" for column in aggregate.columns if column.value == name])
        for name, each in aggregate.aggregates.items()
    ]


def check_rights(connection: Connection, aggregate: PersistentAggregate) -> None:
    """Raise TerminalError if another role may add triggers to a table of new values: triggers run with the writer's rights."""
    table = aggregate.state.new_values
    if table is None:
        return
    other = connection.execute(query("rules_by_others"), {"name": _quoted(table)}).first()
    if other is not None:
        raise PermissionDenied(
            f"table {table} of new values: {other.what} is owned by {other.role!r}, of which the writer {other.writer!r} is no "
            f"member, and would run with the writer's rights in each commit: ALTER {other.what} OWNER TO the writer, or name "
            "another table"
        )


def ensure(connection: Connection, aggregate: PersistentAggregate) -> None:
    """Create the table for a state's new values, unless the table exists. Raise SchemaMismatch if an existing table differs."""
    table = aggregate.state.new_values
    if table is None:
        return
    keys, values = [key.name for key in aggregate.keys], list(aggregate.aggregates)
    report = _types(connection, f"report.{pg_name(aggregate.state.name)}")
    types = [*(report[key] for key in keys), "text", *(report[value] for value in values for _ in range(2)), "bigint"]
    expected = dict(zip(changes_columns(keys, values), types, strict=True))
    if there := _types(connection, _quoted(table)):
        check_types(table, there, expected)
        check_rights(connection, aggregate)
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


def rename(connection: Connection, aggregate: PersistentAggregate, was: Mapping[str, str]) -> None:
    """Rename the table's columns of renamed values. `was` has the former names by the present names."""
    table = aggregate.state.new_values
    if table is None or not was:
        return
    keys, there = [key.name for key in aggregate.keys], _types(connection, _quoted(table))
    values = list(aggregate.aggregates)
    before, after = (changes_columns(keys, names) for names in ([was.get(name, name) for name in values], values))
    for old, new in zip(before, after, strict=True):
        if old != new and old in there and new not in there:
            statement = f"ALTER TABLE {_quoted(table)} RENAME COLUMN {pg_name(old)} TO {pg_name(new)}"
            connection.exec_driver_sql(statement.replace("%", "%%"))


def _types(connection: Connection, relation: str) -> dict[str, str]:
    return {row.name: row.type for row in connection.execute(query("columns_of"), {"name": relation})}


def _quoted(table: NewValuesTable) -> str:
    return f"{pg_name(table.schema)}.{pg_name(table.name)}"
