"""One ledger in two backings, in the same words: every test of this folder runs against both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text
from support import Keyed, code, manifest_of, record_batch, run
from twin.definition_changes import ChangingLedger
from twin.rebuild import MemoryRebuilds
from twin.retention import MemoryRetention
from twin.window_retention import MemoryWindows

from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.transaction import Assignment, Batch, BatchStatus
from txbatch.core.corrections.rebuild import Rebuilds
from txbatch.core.corrections.retention import Retention
from txbatch.core.corrections.window_retention import Windows
from txbatch.core.definition.job_rules import no_jobs
from txbatch.core.protocol import coordinator
from txbatch.core.protocol.ledger import Committed
from txbatch.core.records.time_buckets import time_of
from txbatch.core.topology.topology import Topology
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.corrections.rebuild import PostgresRebuilds
from txbatch.postgres.corrections.retention import Retention as PostgresRetention
from txbatch.postgres.corrections.window_retention import PostgresWindows
from txbatch.postgres.database.expressions import pg_name
from txbatch.postgres.database.migrate import migrate
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.ledger import PostgresLedger
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.testing import LocalTopology

Partials = Mapping[str, Sequence[Keyed]]


class Backing:
    """A ledger, and what a test needs to see beside it."""

    def __init__(self, ledger: ChangingLedger | PostgresLedger) -> None:
        self.ledger, self.jobs = ledger, dict[str, Topology]()

    def job(self, topology: str) -> Topology:
        """The job of a topology, if it is one of those at hand."""
        return self.jobs.get(topology) or no_jobs(topology)

    @property
    def rebuilds(self) -> Rebuilds:
        """What carries out rebuilds of this ledger."""
        raise NotImplementedError

    @property
    def retention(self) -> Retention:
        """What folds the past of this ledger."""
        raise NotImplementedError

    @property
    def windows(self) -> Windows:
        """What lets windows leave the states of this ledger."""
        raise NotImplementedError

    def left_rows(self, name: str) -> dict[str, list[Any]]:
        """The keys of a state's rows, of its base and of its contributions."""
        raise NotImplementedError

    def age(self, txid: int, days: int) -> None:
        """As if all up to this txid had been committed so many days ago."""
        raise NotImplementedError

    def base(self, name: str) -> dict[Any, tuple[Any, ...]]:
        """By key, what was folded: value and txid."""
        raise NotImplementedError

    def reconnect(self) -> None:
        """As after a restart of everything but the database."""
        raise NotImplementedError

    def end_leases(self) -> None:
        """As if time had passed and no run had renewed its lease."""
        raise NotImplementedError

    def state(self, name: str) -> dict[Any, tuple[Any, ...]]:
        """By key: value and txid."""
        raise NotImplementedError

    def contributions(self, name: str) -> dict[Any, tuple[Any, ...]]:
        """By key, position and txid: the partial."""
        raise NotImplementedError

    def apart(self, name: str) -> dict[Any, tuple[Any, ...]]:
        """The same as `state`, for one that is kept in the database `warehouse`; and its last writer under the key `last`."""
        raise NotImplementedError

    def kept(self, name: str, *, apart: bool = False, columns: Sequence[str] = ("word",)) -> list[tuple[Any, ...]]:
        """The rows of a state that keeps records, such as words: batch, columns, copy and txid."""
        raise NotImplementedError

    def set_last_writer(self, name: str, txid: int) -> None:
        """As if the warehouse were at another txid."""
        raise NotImplementedError

    def forget_attempts(self, topology: str, txid: int) -> None:
        """As if the ledger were set back to when this txid was planned."""
        raise NotImplementedError

    def lose_ledger(self) -> None:
        """The ledger's database is made anew, the warehouse stays."""
        raise NotImplementedError

    def lose_warehouse(self) -> None:
        """The warehouse is made anew, the ledger stays."""
        raise NotImplementedError

    def values(self, name: str, *columns: str) -> dict[Any, tuple[Any, ...]]:
        """By key: these values, and the txid."""
        raise NotImplementedError

    def contributed(self, name: str, *columns: str) -> dict[Any, tuple[Any, ...]]:
        """By key, position and txid: these values."""
        raise NotImplementedError

    def report(self, topology: Topology, name: str) -> list[dict[str, Any]]:
        """The rows of a state as reports show them, without the txid."""
        raise NotImplementedError

    def new_values(self, table: str) -> list[tuple[Any, ...]]:
        """What commits wrote into a table of new values."""
        raise NotImplementedError

    def attempts(self, topology: str) -> list[tuple[str, str]]:
        """Each attempt with its status."""
        raise NotImplementedError

    def times(self, topology: str, txid: int) -> tuple[Any, Any]:
        """Where the watermarks are since a batch was committed, by stream, and how many of its records were late, by state."""
        raise NotImplementedError

    def ahead(self, topology: str, txid: int) -> tuple[int, datetime] | None:
        """How many records of a batch were of a time after it was planned, and the greatest time, as reports show them."""
        raise NotImplementedError

    def closings(self, topology: str, txid: int) -> tuple[Any, Any]:
        """Up to when windows are closed since a batch was committed, and those that it closed, by state."""
        raise NotImplementedError

    def as_partials(self, topology: Topology, partials: Partials) -> Any:
        """In the form that this ledger's commit takes."""
        raise NotImplementedError

    # ---- the steps of a batch

    def initialize(self, topology: Topology, name: str) -> Any:
        self.ledger.register(topology, "jobs/job.py")
        return coordinator.initialize_transaction(self.ledger, topology, run(name))

    def attempt(self, batch: Batch, name: str = "run", source: str = "code") -> Assignment:
        return self.ledger.start_attempt(batch, run(name), code(source))

    def emit(
        self, topology: Topology, batch: Batch, partials: Partials, name: str = "run", **changes: Any
    ) -> tuple[Assignment, Manifest]:
        assignment = self.attempt(batch, name)
        manifest = manifest_of(topology, assignment, partials, **changes)
        self.ledger.record_manifests([(assignment, manifest)])
        return assignment, manifest

    def commit(self, topology: Topology, batch: Batch, partials: Partials) -> Committed:
        """As the task does: the batch is read, then its newest attempt's partials."""
        now = self.ledger.batch(topology.name, batch.txid)
        return self.ledger.commit(topology, now, self.as_partials(topology, partials))

    def whole(self, topology: Topology, partials: Partials, name: str) -> Batch:
        """A batch through all its steps."""
        batch = self.initialize(topology, name)
        assert isinstance(batch, Batch), batch
        self.emit(topology, batch, partials, name)
        committed = self.commit(topology, batch, partials)
        assert committed.applied
        assert self.ledger.success(topology.name, batch.txid)
        return committed.batch


class Memory(Backing):
    def __init__(self) -> None:
        self.now = datetime.now(UTC)
        super().__init__(ChangingLedger(clock=lambda: self.now, jobs=self.job))

    @property
    def rebuilds(self) -> Rebuilds:
        return MemoryRebuilds(self.ledger)

    @property
    def retention(self) -> Retention:
        return MemoryRetention(self.ledger)

    @property
    def windows(self) -> Windows:
        return MemoryWindows(self.ledger)

    def left_rows(self, name: str) -> dict[str, list[Any]]:
        stored = self.ledger.tables.states[name]
        contributions = [key for key, *_ in stored.contributions]
        return {"rows": sorted(stored.rows), "base": sorted(stored.base), "contributions": sorted(contributions)}

    def age(self, txid: int, days: int) -> None:
        committed = self.ledger.tables.committed_at
        committed |= {at: self.now - timedelta(days=days) for at in committed if at[1] <= txid}

    def base(self, name: str) -> dict[Any, tuple[Any, ...]]:
        return {key: (*row.value, row.txid) for key, row in self.ledger.tables.states[name].base.items()}

    def reconnect(self) -> None:
        """Memory does not survive; the ledger goes on."""

    def end_leases(self) -> None:
        self.now += timedelta(days=10)

    def state(self, name: str) -> dict[Any, tuple[Any, ...]]:
        return {key: (*value.value, value.txid) for key, value in self.ledger.rows(name).items()}

    def apart(self, name: str) -> dict[Any, tuple[Any, ...]]:
        stored = self.ledger.warehouses.states["warehouse", name]
        rows, last = {key: (*value.value, value.txid) for key, value in stored.rows.items()}, stored.last
        return {**rows, "last": (str(last.attempt), str(last.status))}

    def kept(self, name: str, *, apart: bool = False, columns: Sequence[str] = ("word",)) -> list[tuple[Any, ...]]:
        rows = self.ledger.warehouses.states["warehouse", name].rows if apart else self.ledger.rows(name)
        places = [0] if apart else self._places(name, columns)
        return [(batch, *(row.value[at] for at in places), copy, row.txid) for (batch, _, copy), row in rows.items()]

    def set_last_writer(self, name: str, txid: int) -> None:
        at, states = ("warehouse", name), self.ledger.warehouses.states
        changed = replace(states[at], last=replace(states[at].last, txid=txid))
        self.ledger.warehouses.states = {**states, at: changed}

    def forget_attempts(self, topology: str, txid: int) -> None:
        tables = self.ledger.tables
        tables.batches[topology, txid] = replace(
            tables.batches[topology, txid], fence=0, token=None, status=BatchStatus.PLANNED
        )

    def lose_ledger(self) -> None:
        self.ledger = ChangingLedger(clock=lambda: self.now, warehouses=self.ledger.warehouses)

    def lose_warehouse(self) -> None:
        self.ledger.warehouses.states = {}

    def contributions(self, name: str) -> dict[Any, tuple[Any, ...]]:
        return dict(self.ledger.tables.states[name].contributions)

    def values(self, name: str, *columns: str) -> dict[Any, tuple[Any, ...]]:
        places = self._places(name, columns)
        rows = self.ledger.rows(name).items()
        return {key: (*(row.value[place] for place in places), row.txid) for key, row in rows}

    def report(self, topology: Topology, name: str) -> list[dict[str, Any]]:
        return LocalTopology(topology, self.ledger).rows(name)

    def new_values(self, table: str) -> list[tuple[Any, ...]]:
        return self.ledger.new_values(table)

    def contributed(self, name: str, *columns: str) -> dict[Any, tuple[Any, ...]]:
        places = self._places(name, columns)
        found = self.ledger.tables.states[name].contributions.items()
        return {at: tuple(partial[place] for place in places) for at, partial in found}

    def _places(self, name: str, columns: Sequence[str]) -> list[int]:
        stored = [column for column, *_ in self.ledger.tables.states[name].definition.columns["values"]]
        assert set(stored) >= set(columns)
        return [stored.index(column) for column in columns]

    def attempts(self, topology: str) -> list[tuple[str, str]]:
        found = sorted(self.ledger.tables.attempts.items(), key=lambda item: item[0][1])
        return [(str(attempt), row.status) for (name, attempt), row in found if name == topology]

    def times(self, topology: str, txid: int) -> tuple[Any, Any]:
        found = self.ledger.tables.times.get((topology, txid))
        return (found.watermark or None, found.late or None) if found else (None, None)

    def ahead(self, topology: str, txid: int) -> tuple[int, datetime] | None:
        found = self.ledger.tables.times[topology, txid].ahead
        return None if found is None else (found.records, time_of(found.to))

    def closings(self, topology: str, txid: int) -> tuple[Any, Any]:
        found = self.ledger.tables.times[topology, txid]
        return found.closed_to or None, {state: [*each] for state, each in found.closed.items()} or None

    def as_partials(self, topology: Topology, partials: Partials) -> Any:
        return partials


class Postgres(Backing):
    def __init__(self, engine: Engine, databases: Callable[[str], str]) -> None:
        self.engine, self.databases = engine, databases
        super().__init__(PostgresLedger(engine, warehouses=Warehouses(databases), jobs=self.job))

    @property
    def rebuilds(self) -> Rebuilds:
        return PostgresRebuilds(self.engine)

    @property
    def retention(self) -> Retention:
        return PostgresRetention(self.engine, self.job)

    @property
    def windows(self) -> Windows:
        return PostgresWindows(self.engine)

    def left_rows(self, name: str) -> dict[str, list[Any]]:
        columns = "SELECT columns FROM txbatch.state WHERE state = :name"
        with self.engine.connect() as connection:
            keys = ", ".join(
                pg_name(key) for key, _ in connection.execute(text(columns), {"name": name}).scalar_one()["keys"]
            )
            tables = {"rows": "state", "base": "contribution_base", "contributions": "contribution"}
            return {
                what: [
                    tuple(row)
                    for row in connection.execute(text(f"SELECT {keys} FROM {schema}.{pg_name(name)} ORDER BY 1, 2"))
                ]
                for what, schema in tables.items()
            }

    def age(self, txid: int, days: int) -> None:
        with self.engine.begin() as connection:
            set_back = (
                "UPDATE txbatch.batch SET committed_at = now() - make_interval(days => :days) WHERE txid <= :txid"
            )
            connection.execute(text(set_back), {"days": days, "txid": txid})

    def base(self, name: str) -> dict[Any, tuple[Any, ...]]:
        with self.engine.connect() as connection:
            rows = connection.execute(text(f"SELECT word, count, txid FROM contribution_base.{pg_name(name)}"))
            return {(word,): (count, txid) for word, count, txid in rows}

    def reconnect(self) -> None:
        self.engine.dispose()
        self.ledger = PostgresLedger(self.engine, warehouses=Warehouses(self.databases))

    def end_leases(self) -> None:
        with self.engine.begin() as connection:
            connection.execute(text("UPDATE txbatch.batch SET lease_until = clock_timestamp() - interval '1 s'"))

    def state(self, name: str) -> dict[Any, tuple[Any, ...]]:
        with self.engine.connect() as connection:
            rows = connection.execute(text(f"SELECT word, count, txid FROM state.{pg_name(name)}"))
            return {(word,): (count, txid) for word, count, txid in rows}

    def apart(self, name: str) -> dict[Any, tuple[Any, ...]]:
        with self.ledger.warehouses.engine("warehouse").connect() as connection:
            rows = connection.execute(text(f"SELECT word, count, txid FROM state.{pg_name(name)}"))
            found: dict[Any, tuple[Any, ...]] = {(word,): (count, txid) for word, count, txid in rows}
            last = "SELECT txid || ':' || attempt_id, status FROM txbatch.apart WHERE state = :name"
            (found["last"],) = (tuple(row) for row in connection.execute(text(last), {"name": name}))
            return found

    def kept(self, name: str, *, apart: bool = False, columns: Sequence[str] = ("word",)) -> list[tuple[Any, ...]]:
        engine = self.ledger.warehouses.engine("warehouse") if apart else self.engine
        with engine.connect() as connection:
            found = connection.execute(
                text(f"SELECT batch, {', '.join(columns)}, copy, txid FROM state.{pg_name(name)}")
            )
            return [tuple(row) for row in found]

    def set_last_writer(self, name: str, txid: int) -> None:
        with self.ledger.warehouses.engine("warehouse").begin() as connection:
            statement = "UPDATE txbatch.apart SET txid = :txid WHERE state = :name"
            connection.execute(text(statement), {"name": name, "txid": txid})

    def forget_attempts(self, topology: str, txid: int) -> None:
        with self.engine.begin() as connection:
            ids = {"t": topology, "n": txid}
            connection.execute(text("DELETE FROM txbatch.attempt WHERE topology = :t AND txid = :n"), ids)
            set_back = "UPDATE txbatch.batch SET fence = 0, token = NULL, status = 'planned'"
            connection.execute(text(f"{set_back} WHERE topology = :t AND txid = :n"), ids)

    def lose_ledger(self) -> None:
        self._drop(
            self.engine, "txbatch", "state", "contribution", "contribution_partition", "contribution_base", "report"
        )
        migrate(self.engine)

    def lose_warehouse(self) -> None:
        self._drop(self.ledger.warehouses.engine("warehouse"), "txbatch", "state", "report")

    def _drop(self, engine: Engine, *schemas: str) -> None:
        with engine.begin() as connection:
            connection.execute(text(f"DROP SCHEMA {', '.join(schemas)} CASCADE"))

    def contributions(self, name: str) -> dict[Any, tuple[Any, ...]]:
        with self.engine.connect() as connection:
            rows = connection.execute(text(f"SELECT word, position, txid, count FROM contribution.{pg_name(name)}"))
            return {((word,), position, txid): (count,) for word, position, txid, count in rows}

    def values(self, name: str, *columns: str) -> dict[Any, tuple[Any, ...]]:
        with self.engine.connect() as connection:
            rows = connection.execute(text(f"SELECT word, {', '.join(columns)}, txid FROM state.{pg_name(name)}"))
            return {(word,): tuple(rest) for word, *rest in rows}

    def report(self, topology: Topology, name: str) -> list[dict[str, Any]]:
        (of,) = (each.state for each in topology.aggregates if each.state.name == name)
        engine = self.engine if of.database is None else self.ledger.warehouses.engine(of.database)
        with transaction(engine) as connection:
            found = connection.execute(text(f"SELECT * FROM report.{pg_name(name)}")).mappings()
            return [{column: value for column, value in row.items() if column != "txid"} for row in found]

    def new_values(self, table: str) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            found = connection.execute(text(f"SELECT * FROM {'.'.join(map(pg_name, table.split('.')))} ORDER BY txid"))
            return [tuple(row) for row in found]

    def contributed(self, name: str, *columns: str) -> dict[Any, tuple[Any, ...]]:
        selected = f"SELECT word, position, txid, {', '.join(columns)} FROM contribution.{pg_name(name)}"
        with self.engine.connect() as connection:
            rows = connection.execute(text(selected))
            return {((word,), position, txid): tuple(rest) for word, position, txid, *rest in rows}

    def attempts(self, topology: str) -> list[tuple[str, str]]:
        listed = "SELECT attempt, status FROM report.attempts WHERE topology = :t ORDER BY txid, attempt_id"
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(listed), {"t": topology})]

    def times(self, topology: str, txid: int) -> tuple[Any, Any]:
        written = "SELECT watermark, late FROM txbatch.batch WHERE topology = :t AND txid = :n"
        with self.engine.connect() as connection:
            return tuple(connection.execute(text(written), {"t": topology, "n": txid}).one())

    def ahead(self, topology: str, txid: int) -> tuple[int, datetime] | None:
        found = next(each for each in LedgerReader(self.engine).batches(topology, 100) if each["txid"] == txid)
        return None if found["ahead"] is None else (found["ahead"], found["ahead_to"].astimezone(UTC))

    def closings(self, topology: str, txid: int) -> tuple[Any, Any]:
        written = "SELECT closed_to, closed FROM txbatch.batch WHERE topology = :t AND txid = :n"
        with self.engine.connect() as connection:
            return tuple(connection.execute(text(written), {"t": topology, "n": txid}).one())

    def as_partials(self, topology: Topology, partials: Partials) -> Any:
        return {each.state.name: [record_batch(each, partials[each.state.name])] for each in topology.aggregates}


@pytest.fixture(params=["memory", "postgres"])
def backing(request: pytest.FixtureRequest) -> Backing:
    make: dict[str, Callable[[], Backing]] = {
        "memory": Memory,
        "postgres": lambda: Postgres(request.getfixturevalue("engine"), request.getfixturevalue("databases")),
    }
    return make[request.param]()
