"""The preview of a rebuild: count versions into tables that are dropped at the end of the transaction (R23)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Engine

from txbatch.core.aggregates.merge import merge_named
from txbatch.core.batch.transaction import Batch
from txbatch.core.corrections.verify import EXAMPLES_MAX, Again, KeyDifference
from txbatch.core.definition.stored import StateDefinition
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.topology import Topology
from txbatch.postgres.corrections.rebuild import check, create, write
from txbatch.postgres.corrections.verify import differs
from txbatch.postgres.database.engine import execute
from txbatch.postgres.database.expressions import listed, pg_name
from txbatch.postgres.database.generations import Generation
from txbatch.postgres.database.queries import query
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.state.folds import Folds
from txbatch.postgres.tables import batches, definitions

_HERE = "prev_txid"  # which no value is called


@dataclass(frozen=True, slots=True)
class Extent:
    """The work of a rebuild: the number of positions, the first, the last, and the number of records when they were counted.

    `took` is the duration of all attempts, estimated by the attempts that are kept; None if no attempt is kept. `reads` has a
    row for each stream.
    """

    positions: int
    first: int
    last: int
    records: int
    took: timedelta | None
    reads: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Difference:
    """The number of keys of a state before and after, and of keys that changed.

    A key has changed if only one side has the key, or if both sides have a value and the values differ. `why_not` is the
    reason why one side, or the difference, is unknown: the number is None.
    """

    state: str
    before: int | None
    after: int | None
    changed: int | None
    examples: tuple[KeyDifference, ...] = ()
    why_not: str | None = None


def extent(engine: Engine, topology: Topology, job: str) -> Extent:
    """Return the work of a rebuild. Raise the error that the rebuild would raise."""
    with transaction(engine) as connection:
        definitions.check_name(connection, topology, job)
        batches.topology_row(connection, topology.name)
        check(connection, topology)
        ids = {"topology": topology.name}
        reads = [dict(row) for row in connection.execute(query("rebuild_reads"), ids).mappings()]
        return Extent(**batches.one(connection, "rebuild_extent", **ids), reads=reads)


def newest(engine: Engine, topology: str, positions: int) -> list[Batch]:
    """Return the versions of the newest positions, as many as `positions`, in the order of a rebuild."""
    with transaction(engine) as connection:
        found = batches.batches(connection, "newest_to_count", topology=topology, positions=positions)
        return sorted(found, key=lambda each: each.txid)


def differences(engine: Engine, topology: Topology, emitted: Sequence[tuple[Batch, Again]]) -> Iterator[Difference]:
    """Yield, for each state, the result of the given versions alone beside their stored contributions. Store nothing."""
    with transaction(engine.execution_options(isolation_level="REPEATABLE READ")) as connection, _undone(connection):
        known, generation = definitions.known(connection, topology).states, Generation(f"_plan_{uuid4().hex[:12]}")
        create(connection, topology, generation)
        for version, again in emitted:
            write(connection, topology, version, (again.assignment, again.manifest, again.partials()), generation)
        versions = _Versions(connection, generation, [version.txid for version, _ in emitted])
        for aggregate in topology.aggregates:
            yield versions.difference(aggregate, known.get(aggregate.state.name))
        now = {aggregate.state.name for aggregate in topology.aggregates}
        yield from (Difference(name, None, None, None, why_not="it goes") for name in sorted(known.keys() - now))


@contextmanager
def _undone(connection: Connection) -> Iterator[None]:
    """Context manager. Undo the block's changes at the end."""
    execute(connection, "SAVEPOINT nothing")
    yield
    execute(connection, "ROLLBACK TO nothing")


@dataclass(frozen=True, slots=True)
class _Side:
    """A temporary table with keys and values, with the columns of a definition."""

    table: str
    folds: Folds

    @property
    def keys(self) -> Sequence[str]:
        return self.folds.keys

    @property
    def named(self) -> list[Any]:
        """Names and types of the keys, as in the definition."""
        return [list(key) for key in self.folds.stored["keys"]]

    def texts(self, alias: str) -> str:
        """Return all values of a row as texts."""
        return _texts(f"{alias}.{value}" for value in self.folds.values)

    def told(self, values: Sequence[str | None]) -> dict[str, str | None]:
        """Return the texts of values by name."""
        return dict(zip((name for name, *_ in self.folds.stored["values"]), values, strict=True))

    def key(self, values: Sequence[str]) -> dict[str, str]:
        """Return keys by name; empty for a global value."""
        return {name: value for (name, _), value in zip(self.named, values, strict=False)}


@dataclass(frozen=True, slots=True)
class _Versions:
    """The results of some versions: in a generation with only these versions, and in the current generation."""

    connection: Connection
    generation: Generation
    txids: Sequence[int]

    def difference(self, aggregate: PersistentAggregate, stored: StateDefinition | None) -> Difference:
        """Return the difference of one state between the versions' stored contributions and their new results."""
        name, folds = aggregate.state.name, Folds.of(aggregate)
        after = self._side(
            "after", folds, f"SELECT {listed([*folds.keys, *folds.values])} FROM {self.generation.state(name)}"
        )
        why_not = self._why_not(name, stored) or _by_python(folds, stored)
        if stored is None or why_not is not None:
            return Difference(name, None, self._keys(after), None, self._only(after), why_not)
        was = Folds(aggregate.topology, name, stored.columns, folds.own)
        before = self._side("before", was, was.of_txids(self.txids))
        if before.named != after.named:
            return Difference(
                name,
                self._keys(before),
                self._keys(after),
                None,
                self._only(after),
                "it has other keys: only their numbers compare",
            )
        return self._compared(aggregate, before, after)

    def _why_not(self, state: str, stored: StateDefinition | None) -> str | None:
        """Return why the versions' contributions are unknown. Return None if they are known."""
        if stored is None:
            return "it is new"
        if not stored.contributions:
            return "the state keeps no contributions, so the shares of single batches are unknown"
        found = self.connection.execute(query("horizon_of"), {"state": state}).scalar_one()
        return f"what it has of txids up to {found} is folded" if min(self.txids, default=found + 1) <= found else None

    def _side(self, table: str, folds: Folds, selected: str) -> _Side:
        execute(self.connection, f"DROP TABLE IF EXISTS pg_temp.{table}")
        execute(self.connection, f"CREATE TEMP TABLE {table} ON COMMIT DROP AS {selected}")
        return _Side(f"pg_temp.{table}", folds)

    def _keys(self, side: _Side) -> int:
        return int(execute(self.connection, f"SELECT count(*) FROM {side.table}").fetchone()[0])

    def _only(self, side: _Side) -> tuple[KeyDifference, ...]:
        """Return some keys of one side."""
        selected = f"SELECT {_texts(side.keys)}, {side.texts('s')} FROM {side.table} s ORDER BY 1 LIMIT {EXAMPLES_MAX}"
        found = execute(self.connection, selected).fetchall()
        return tuple(KeyDifference(side.key(key), None, side.told(values)) for key, values in found)

    def _compared(self, aggregate: PersistentAggregate, before: _Side, after: _Side) -> Difference:
        """Compare key by key; changed keys come first among the examples."""
        same = " AND ".join(f"s.{key} = a.{key}" for key in after.keys)
        key = _texts(f"COALESCE(s.{key}, a.{key})" for key in after.keys)
        sides = [
            f"(SELECT true AS {_HERE}, * FROM {side.table}) {alias}" for side, alias in ((before, "s"), (after, "a"))
        ]
        changed = " OR ".join([f"s.{_HERE} IS NULL", f"a.{_HERE} IS NULL", *_differ(aggregate, before)])
        selected = (
            f"SELECT {key}, s.{_HERE}, {before.texts('s')}, a.{_HERE}, {after.texts('a')}, "
            f"count(*) FILTER (WHERE {changed}) OVER () FROM {' FULL JOIN '.join(sides)} ON {same} "
            f"ORDER BY ({changed}) DESC, 1 LIMIT {EXAMPLES_MAX}"
        )
        found = execute(self.connection, selected).fetchall()
        examples = tuple(
            KeyDifference(after.key(key), before.told(old) if here else None, after.told(new) if there else None)
            for key, here, old, there, new, _ in found
        )
        counts = self._keys(before), self._keys(after), found[0][-1] if found else 0
        return Difference(aggregate.state.name, *counts, examples)


def _by_python(folds: Folds, stored: StateDefinition | None) -> str | None:
    """Return why the versions' contributions cannot be merged. Return None if they can."""
    for name, _, merge in stored.columns["values"] if stored else ():
        known = folds.own.get(merge) or merge_named(merge)
        if known is None or not known.in_sql:
            return f"it merges {name!r} by {merge}, a rule of its job's own: what it has of single batches is not told"
    return None


def _differ(aggregate: PersistentAggregate, before: _Side) -> Iterator[str]:
    """Yield the conditions under which a value on both sides differs: by text if the types differ."""
    types = {name: type_ for name, type_, _ in before.folds.stored["values"]}
    for column in aggregate.columns:
        name = pg_name(column.name)
        if types.get(column.name) == column.partial.type:
            yield differs(column)
        elif column.name in types:
            yield f"s.{name}::text IS DISTINCT FROM a.{name}::text"


def _texts(columns: Iterable[str]) -> str:
    return f"ARRAY[{listed(f'{column}::text' for column in columns)}]"
