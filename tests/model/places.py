"""Where histories of corrections happen: in the twin, and in PostgreSQL, in the same words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol

from model.kept import Report
from sqlalchemy import Engine, text
from support import Keyed, record_batch
from twin.definition_changes import ChangingLedger
from twin.rebuild import MemoryRebuilds
from twin.retention import MemoryRetention

from txbatch import Topology
from txbatch.core.aggregates.merge import Partial
from txbatch.core.aggregates.merger import Merger
from txbatch.core.corrections.rebuild import Rebuilds
from txbatch.core.corrections.retention import Retention
from txbatch.core.state.fold import Contribution, fold, last_changed
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.memory.tables import Tables
from txbatch.postgres.corrections.rebuild import PostgresRebuilds
from txbatch.postgres.corrections.retention import Retention as PostgresRetention
from txbatch.postgres.database.expressions import pg_name
from txbatch.postgres.ledger import PostgresLedger


class Place(Protocol):
    """A ledger, and what people see of it."""

    ledger: ChangingLedger | PostgresLedger
    rebuilds: Rebuilds
    retention: Retention

    def expire(self, topology: str) -> None:
        """As if time had passed and no run had renewed its lease."""

    def as_partials(self, topology: Topology, partials: Mapping[str, Sequence[Keyed]]) -> Any:
        """In the form that this ledger's commit takes."""

    def report(self, topology: Topology) -> Report:
        """What reports show."""

    def as_of(self, topology: Topology, txid: int) -> Report:
        """What they showed when this txid was the newest final one."""

    def corrected(self, topology: Topology, position: int) -> Report:
        """What all up to a position amounts to, in the versions that count now."""


class Twin:
    """In memory."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)
        self.ledger = ChangingLedger(clock=lambda: self.now)
        self.rebuilds, self.retention = MemoryRebuilds(self.ledger), MemoryRetention(self.ledger)

    def expire(self, topology: str) -> None:
        self.now += timedelta(days=1)

    def as_partials(self, topology: Topology, partials: Mapping[str, Sequence[Keyed]]) -> Any:
        return partials

    def report(self, topology: Topology) -> Report:
        aggregate = topology.aggregates[0]
        rows = self.ledger.rows(aggregate.state.name)
        return {
            of_key(key): (finished(aggregate, row.value), row.txid)
            for key, row in rows.items()
            if not getattr(row, "removed", False)
        }

    def as_of(self, topology: Topology, txid: int) -> Report:
        (aggregate,), tables = topology.aggregates, self.ledger.tables
        since = (each for each in tables.rebuilds.values() if (each.swapped or 0) >= txid)
        stored = next((each.past for each in since if each.rebuild.topology == topology.name), tables.states)
        then = replace(tables, states=dict(stored))
        return self._folded(topology, then, contributions(aggregate, then), txid)

    def corrected(self, topology: Topology, position: int) -> Report:
        tables = self.ledger.tables
        given = contributions(topology.aggregates[0], tables)
        up_to = {key: [one for one in each if one.position <= position] for key, each in given.items()}
        return self._folded(topology, tables, up_to)

    def _folded(
        self, topology: Topology, tables: Tables, given: Mapping[Any, list[Contribution]], at: int | None = None
    ) -> Report:
        (aggregate,) = topology.aggregates
        stored, combine = tables.states[aggregate.state.name], Merger(aggregate.merges)
        every = {**dict.fromkeys(stored.base, ()), **given}
        folded = {key: fold(stored.based(key), each, combine, at) for key, each in every.items()}
        dated = {key: row.txid for key, row in stored.base.items()}
        return {
            of_key(key): (finished(aggregate, value), max(dated.get(key, 0), last_changed(every[key], at) or 0))
            for key, value in folded.items()
            if value is not None
        }


def contributions(aggregate: PersistentAggregate, tables: Tables) -> dict[Any, list[Contribution]]:
    """All that the twin keeps of a state, by key."""
    found: dict[Any, list[Contribution]] = {}
    for (key, position, txid), partial in tables.states[aggregate.state.name].contributions.items():
        (change,) = aggregate.changes([(key, partial)]).values()
        replaced_by = tables.batches[aggregate.topology, txid].replaced_by
        found.setdefault(key, []).append(Contribution(position, txid, change, replaced_by))
    return found


def of_key(key: Sequence[Any]) -> str:
    """The one key column's value; of a global value none."""
    return key[0] if key else ""


def finished(aggregate: PersistentAggregate, partial: Partial) -> Any:
    """Count, sum, min, max and mean."""
    parts = dict(zip([(each.value, each.name) for each in aggregate.columns], partial, strict=True))
    return tuple(
        number(each.finish(tuple(part for (value, _), part in parts.items() if value == name)))
        for name, each in aggregate.aggregates.items()
    )


def number(value: Any) -> Any:
    """Means have other digits in PostgreSQL."""
    return round(float(value), 6) if isinstance(value, float | Decimal) else value


class Real:
    """In PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.ledger, self.rebuilds = engine, PostgresLedger(engine), PostgresRebuilds(engine)
        self.retention = PostgresRetention(engine)

    def expire(self, topology: str) -> None:
        ended = "UPDATE txbatch.batch SET lease_until = clock_timestamp() - interval '1 s' WHERE topology = :t"
        with self.engine.begin() as connection:
            connection.execute(text(ended), {"t": topology})

    def as_partials(self, topology: Topology, partials: Mapping[str, Sequence[Keyed]]) -> Any:
        return {each.state.name: [record_batch(each, partials[each.state.name])] for each in topology.aggregates}

    def report(self, topology: Topology) -> Report:
        return self._rows(topology, f"report.{pg_name(topology.name)}")

    def as_of(self, topology: Topology, txid: int) -> Report:
        asked = f"SELECT min(rebuild) FROM txbatch.rebuild WHERE topology = :t AND swapped_txid >= {txid}"
        with self.engine.connect() as connection:
            past = connection.execute(text(asked), {"t": topology.name}).scalar_one()
        schema = "report" if past is None else f"report_past_{past}"
        return self._past(topology, f"{schema}.{pg_name(f'as_of_{topology.name}')}({txid})")

    def corrected(self, topology: Topology, position: int) -> Report:
        return self._past(topology, f"report.{pg_name(f'corrected_{topology.name}')}({position})")

    def _past(self, topology: Topology, source: str) -> Report:
        """In one pass, which a search for each key that changed since must agree with."""
        near, far = (self._rows(topology, source, f"SET LOCAL txbatch.far_back = {way}") for way in ("off", "on"))
        assert near == far, f"{source}: {near} key by key, {far} in one pass"
        return far

    def _rows(self, topology: Topology, source: str, first: str = "SELECT") -> Report:
        (aggregate,) = topology.aggregates
        key = pg_name(aggregate.keys[0].name) if aggregate.keys else "''"
        values = ", ".join(pg_name(name) for name in aggregate.aggregates)
        with self.engine.connect() as connection:
            connection.execute(text(first))
            rows = connection.execute(text(f"SELECT {key}, txid, {values} FROM {source}")).all()
            found = {row[0]: (tuple(map(number, row[2:])), row[1]) for row in rows}
            assert len(found) == len(rows), f"{source}: a key comes more than once: {rows}"
            return found
