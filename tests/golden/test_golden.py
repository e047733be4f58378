"""The golden cases of R9: data in <group>/<case>.json, each run against the core, the in-memory twin and PostgreSQL.

A case says the `kind` of state, whether it commits `apart`, `fields`, `keys` and `values` (aggregator, input, options;
by default a count per word; without keys it is one global value), the `stored` rows and `steps`: each applies a `batch`
of partials as `txid` and names the rows expected afterwards, or the `code` of the error and the values that its text
`names`: then nothing may have changed. `report` is what people see. With `remove`, a partial that is `removed` removes its
key, and counts if it has values; a row that is `removed` is a tombstone, which reports do not show.
`rules` names the rules of the protocol that the case shows. The stories of whole batches are in protocol/, what restates
make of values in corrections/, what operations per batch make of records in operations/, what batches make of sessions in
sessions/, which tests/contract/test_sessions.py runs, when they are closed in closed_sessions/, which
tests/contract/test_closed_sessions.py runs, windows of processing time in processing_time/, which
tests/contract/test_processing_time.py runs, those by count in numbered/, which tests/contract/test_numbered.py runs, and
late records and windows that close in late/ and closed_windows/, which tests/contract/test_late.py runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from refusals import refused
from sqlalchemy import Connection, Engine
from support import ListSpout, code, manifest_of, record_batch, run, staged

import txbatch
from txbatch.core.aggregates.aggregator import PartialColumn, required
from txbatch.core.aggregates.merge import Merge
from txbatch.core.aggregates.merger import Merger
from txbatch.core.batch.apart import ApartStatus, LastWriter, LedgerView
from txbatch.core.batch.manifest import StagedState
from txbatch.core.batch.transaction import Assignment, Batch, BatchStatus, TransactionAttempt
from txbatch.core.protocol.commit import StatePlan
from txbatch.core.records.fields import Field
from txbatch.core.records.sql import spark_name
from txbatch.core.sources.spout import SpoutKind
from txbatch.core.state.state import (
    NonTransactionalState,
    NonTransactionalValue,
    OpaqueState,
    OpaqueValue,
    StateKind,
    TransactionalState,
    TransactionalValue,
)
from txbatch.core.state.update import Updater
from txbatch.core.topology.persistent_aggregate import PREVIOUS_PREFIX, PersistentAggregate
from txbatch.core.topology.topology import Topology
from txbatch.memory import apart as apart_in_memory
from txbatch.memory.apart import MemoryWarehouses
from txbatch.memory.ledger import MemoryLedger
from txbatch.postgres.apart import apart
from txbatch.postgres.database.driver_errors import translate
from txbatch.postgres.database.engine import connect, execute
from txbatch.postgres.database.expressions import pg_name
from txbatch.postgres.database.queries import query
from txbatch.postgres.schema.report_views import create_report
from txbatch.postgres.state.statements import statements_of
from txbatch.postgres.state.writer import (
    ApartWriter,
    LedgerWriter,
    OpaqueReplay,
    StateWriter,
    TransactionalReplay,
)

ROOT = Path(__file__).parent
CASES = sorted(
    path
    for path in ROOT.glob("*/*.json")
    if path.parent.name
    not in (
        "protocol",
        "corrections",
        "operations",
        "sessions",
        "closed_sessions",
        "processing_time",
        "numbered",
        "keep_windows",
        "late",
        "closed_windows",
    )
)


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


named = pytest.mark.parametrize("path", CASES, ids=name_of)
STATES = {"non_transactional": NonTransactionalState, "transactional": TransactionalState, "opaque": OpaqueState}
Row = dict[str, Any]


def load(path: Path, database: str | None = None) -> tuple[Topology, dict[str, Any]]:
    case = json.loads(path.read_text(encoding="utf-8"))
    topology, keys = Topology("golden"), case.get("keys", ["word"])
    spout = ListSpout(kind=SpoutKind.TRANSACTIONAL)
    spout.fields = case.get("fields", "word string")
    values = case.get("values", {"count": ["Count"]})
    words = topology.new_stream("words", spout)
    (words.group_by(*keys) if keys else words).persistent_aggregate(
        STATES[case["kind"]](keys[0] if keys else "total", contributions=False, database=database),
        guarantee="at_least_once",
        remove="removed" if case.get("remove") else None,
        **{name: aggregator(*specification) for name, specification in values.items()},
    )
    return topology, case


def aggregator(name: str, field: str | None = None, options: Mapping[str, Any] | None = None) -> Any:
    made = OWN[name] if name in OWN else getattr(txbatch, name)
    return made(*([field] if field else []), **(options or {}))


class BitOr(Merge):
    """The bits of both, as one of a user's own merges: all that R9 needs to know of it stands here."""

    name = "bit_or"

    def both(self, left: int, right: int) -> int:
        return left | right

    def pair_sql(self, state: str, partial: str) -> str:
        return f"COALESCE({state} | {partial}, {state}, {partial})"

    def fold_sql(self, column: str) -> str:
        return f"bit_or({column})"


class Flags(txbatch.CombinerAggregator):
    """Which bits any record has; an aggregate is this one class, and its merge."""

    def columns(self, input: Field | None) -> tuple[PartialColumn, ...]:
        field = required(self, input)
        return (PartialColumn("", field.type, BitOr(), f"bit_or({spark_name(field.name)})"),)

    def init(self, value: int) -> tuple[int]:
        return (value,)


class Spread(txbatch.CombinerAggregator):
    """How far the values lie apart: Python combines it, PostgreSQL is given what comes out."""

    partial, result = "low bigint, high bigint", "bigint"

    def init(self, value: int) -> tuple[int, int]:
        return value, value

    def combine(self, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
        return min(left[0], right[0]), max(left[1], right[1])

    def finish(self, partial: tuple[int, int]) -> int:
        return partial[1] - partial[0]


OWN = {"Flags": Flags, "Spread": Spread}


class Store:
    """Something that holds a state's rows and applies batches to them, in the words of the cases."""

    def __init__(self, topology: Topology, case: Mapping[str, Any]) -> None:
        (self.aggregate,) = topology.aggregates
        self.topology, self.apart = topology, case.get("apart", False)
        self.put([typed(self.aggregate, row) for row in case["stored"]])

    def put(self, rows: list[Row]) -> None:
        raise NotImplementedError

    def apply(self, txid: int, batch: list[Row]) -> None:
        raise NotImplementedError

    def rows(self) -> list[Row]:
        raise NotImplementedError

    def report(self) -> list[Row]:
        raise NotImplementedError

    def partials(self, batch: list[Row]) -> list[tuple[Any, Any]]:
        return [(key_of(self.aggregate, row), self._partial(row)) for row in batch]

    def _partial(self, row: Row) -> tuple[Any, ...]:
        names = [column.name for column in self.aggregate.columns]
        if not self.aggregate.removable:
            return tuple(row[name] for name in names)
        marks = row.get("removed", False), any(name in row for name in names)
        return (*(row.get(name) for name in names), *marks)


class CoreStore(Store):
    """`core.state.update` alone."""

    def put(self, rows: list[Row]) -> None:
        self.values = {key_of(self.aggregate, row): value_of(self.aggregate, row) for row in rows}

    def apply(self, txid: int, batch: list[Row]) -> None:
        updater = Updater(self.aggregate.state.kind, Merger(self.aggregate.merges), self.apart)
        changes = self.aggregate.changes(self.partials(batch))
        self.values = updater.update(self.values, changes, txid).applied(self.values)

    def rows(self) -> list[Row]:
        return [row_of(self.aggregate, key, value) for key, value in self.values.items()]

    def report(self) -> list[Row]:
        return [self._finished(key, value.value) for key, value in self.values.items() if value.value is not None]

    def _finished(self, key: tuple[Any, ...], partial: tuple[Any, ...]) -> Row:
        row = {field.name: part for field, part in zip(self.aggregate.keys, key, strict=True)}
        for name, aggregator in self.aggregate.aggregates.items():
            mine = [part for part, each in zip(partial, self.aggregate.columns, strict=True) if each.value == name]
            row[name] = aggregator.finish(tuple(mine))
        return row


class MemoryStore(CoreStore):
    """A whole commit through the in-memory twin, its ledger set to the txid before."""

    def put(self, rows: list[Row]) -> None:
        self.ledger = MemoryLedger()
        self.ledger.register(self.topology, "jobs/golden.py")
        super().put(rows)

    def apply(self, txid: int, batch: list[Row]) -> None:
        name, tables = self.aggregate.state.name, self.ledger.tables
        tables.batches, tables.leases, tables.batch_keys = {}, {}, {}
        if txid > 1:
            before = Batch("golden", txid - 1, BatchStatus.COMMITTED, {"streams": {}}, "run:before")
            tables.batches["golden", txid - 1], tables.leases["golden", txid - 1] = before, datetime.now(UTC)
        tables.states[name] = replace(tables.states[name], rows=self.values)
        mine = run("run")
        metadata = {"streams": {"words": {"start": 0, "end": len(batch)}}}
        planned = self.ledger.plan(self.ledger.head("golden", mine), mine, metadata)
        assert planned is not None
        assert planned.txid == txid
        assignment = self.ledger.start_attempt(planned, mine, code())
        partials = {name: self.partials(batch)}
        emitted = self.ledger.record_manifests([(assignment, manifest_of(self.topology, assignment, partials))])[0]
        try:
            assert self.ledger.commit(self.topology, emitted, partials).applied
        finally:
            self.values = dict(self.ledger.rows(name))


class PostgresStore(Store):
    """The statements of `postgres.state.statements`, run by `postgres.state.writer` on a real table."""

    connection: Connection

    def create(self) -> None:
        execute(self.connection, self.statements.create_state())
        execute(self.connection, create_report(self.aggregate))

    def put(self, rows: list[Row]) -> None:
        self.statements = statements_of(self.aggregate)
        self.create()
        for row in rows:
            if self.aggregate.removable:
                row = {**row, "removed": "removed" in row, "counted": "removed" not in row}
            cursor = self.connection.connection.cursor()
            names = ", ".join(pg_name(name).replace("%", "%%") for name in row)
            table = self.statements.state.replace("%", "%%")
            cursor.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join(['%s'] * len(row))})", list(row.values()))

    def apply(self, txid: int, batch: list[Row]) -> None:
        partials = self.partials(batch)
        said = staged(self.aggregate, partials)
        assignment = Assignment("golden", TransactionAttempt(txid, 1), "token", {"streams": {}}, code())
        execute(self.connection, "SAVEPOINT batch")
        try:
            writer = self.writer()(self.connection, self.statements, assignment)
            writer.apply(writer.load([record_batch(self.aggregate, partials)], said))
        except BaseException as error:
            execute(self.connection, "ROLLBACK TO batch")
            raise as_transaction_would(error) from error
        execute(self.connection, f"DROP TABLE {self.statements.staged}")

    def writer(self) -> type[StateWriter]:
        """Apart, as if each batch might have been there before."""
        replay = {StateKind.OPAQUE: OpaqueReplay, StateKind.TRANSACTIONAL: TransactionalReplay}
        return replay.get(self.aggregate.state.kind, ApartWriter) if self.apart else LedgerWriter

    def rows(self) -> list[Row]:
        rows = self._select(self.statements.state)
        for row in rows if not self.aggregate.keys else ():
            assert row.pop("only")
        for row in rows if self.aggregate.removable else ():
            counted = row.pop("counted")
            assert counted or row["removed"]
            if counted:
                row.pop("removed")
        return rows

    def report(self) -> list[Row]:
        return [
            {name: value for name, value in row.items() if name != "txid"}
            for row in self._select(f"report.{pg_name(self.aggregate.state.name)}")
        ]

    def _select(self, table: str) -> list[Row]:
        cursor = execute(self.connection, f"SELECT * FROM {table}")
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


class Attempts:
    """Each batch of a case as a new attempt of its txid; the stored rows are those of an attempt before."""

    def last(self, case: Mapping[str, Any]) -> LastWriter:
        txid = max((row["txid"] for row in case["stored"]), default=0)
        return LastWriter(txid, 1, "stored", None, ApartStatus.APPLIED) if txid else LastWriter()

    def next(self, txid: int) -> Assignment:
        self.number = getattr(self, "number", 1) + 1
        return Assignment("golden", TransactionAttempt(txid, self.number), f"{self.number}", {"streams": {}}, code())


class MemoryWarehouse(CoreStore, Attempts):
    """`memory.apart`, with its last writer."""

    def __init__(self, topology: Topology, case: Mapping[str, Any]) -> None:
        self.warehouses = MemoryWarehouses()
        super().__init__(topology, case)
        self._set(last=self.last(case))

    def _set(self, **changes: Any) -> None:
        at = apart_in_memory.at_of(self.aggregate)
        self.warehouses.states = {at: replace(self.warehouses.states[at], **changes)}

    def put(self, rows: list[Row]) -> None:
        self.warehouses.ensure("ledger", "golden", self.aggregate, "shape", new=True)
        super().put(rows)
        self._set(rows=self.values)

    def apply(self, txid: int, batch: list[Row]) -> None:
        partials = {self.aggregate.state.name: self.partials(batch)}
        states = [StatePlan(self.aggregate, StagedState((), len(batch), {}))]
        self.warehouses.commit("ledger", self.next(txid), states, partials, lambda *_: LedgerView())
        self.values = dict(self.warehouses.rows(self.aggregate.state.name))


class Warehouse(PostgresStore, Attempts):
    """`postgres.apart.apart`, with its last writer."""

    ledger = "00000000-0000-0000-0000-000000000000"

    def __init__(self, topology: Topology, case: Mapping[str, Any]) -> None:
        super().__init__(topology, case)
        last = self.last(case)
        values = {"txid": last.txid, "attempt_id": last.attempt_id, "token": last.token, "status": str(last.status)}
        self.connection.execute(
            query("set_last_writer"), {"state": self.aggregate.state.name, "digest": None, **values}
        )

    def create(self) -> None:
        apart.ensure(self.connection, self.ledger, "golden", self.aggregate, new=True)

    def apply(self, txid: int, batch: list[Row]) -> None:
        partials = self.partials(batch)
        said, work = staged(self.aggregate, partials), [record_batch(self.aggregate, partials)]
        execute(self.connection, "SAVEPOINT batch")
        try:
            there = apart.check(self.connection, self.ledger, "golden", self.aggregate)
            there.apply(self.statements, self.next(txid), LedgerView(), work, said)
        except BaseException as error:
            execute(self.connection, "ROLLBACK TO batch")
            raise as_transaction_would(error) from error
        execute(self.connection, f"DROP TABLE IF EXISTS {self.statements.staged}")


def fits_a_warehouse(path: Path) -> bool:
    """Not the cases of R9's table alone: of a transactional state, what came before must be known by its digest (R21)."""
    case = json.loads(path.read_text())
    if not case.get("apart") or case["kind"] != "transactional":
        return bool(case.get("apart"))
    before = max((row["txid"] for row in case["stored"]), default=0)
    return all(step["txid"] > before for step in case["steps"][:1]) and all(
        step["txid"] > last["txid"] or sorted(map(str, step["batch"])) == sorted(map(str, last["batch"]))
        for last, step in pairwise(case["steps"])
    )


IN_WAREHOUSES = pytest.mark.parametrize("path", [path for path in CASES if fits_a_warehouse(path)], ids=name_of)


@pytest.fixture(scope="module")
def golden_engine(postgres_server: str) -> Engine:
    from conftest import TEMPLATE
    from databases import admin, in_database

    admin(postgres_server, f"CREATE DATABASE golden TEMPLATE {TEMPLATE}")
    return connect(in_database(postgres_server, "golden"))


@pytest.fixture
def connection(golden_engine: Engine) -> Iterator[Connection]:
    """Never committed."""
    with golden_engine.connect() as PostgresStore.connection:
        yield PostgresStore.connection


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 60


@named
def test_golden_in_the_core(path: Path) -> None:
    check(path, CoreStore)


@pytest.mark.parametrize("path", [path for path in CASES if not json.loads(path.read_text()).get("apart")], ids=name_of)
def test_golden_in_memory(path: Path) -> None:
    """A state apart is not in the ledger's own database: those cases are left out."""
    check(path, MemoryStore)


@pytest.mark.rule("R9", "R21")
@named
def test_golden_in_postgres(path: Path, connection: Connection) -> None:
    check(path, PostgresStore)


@IN_WAREHOUSES
def test_golden_in_a_warehouse_in_memory(path: Path) -> None:
    check(path, MemoryWarehouse, "warehouse")


@IN_WAREHOUSES
@pytest.mark.rule("R21")
def test_golden_in_a_warehouse(path: Path, connection: Connection) -> None:
    """The last writer of a real one lets each attempt do what the table says, or refuses it."""
    check(path, Warehouse, "warehouse")


def check(path: Path, store: type[Store], database: str | None = None) -> None:
    topology, case = load(path, database)
    state = store(topology, case)
    expected = [typed(state.aggregate, row) for row in case["stored"]]
    for step in case["steps"]:
        batch = [typed(state.aggregate, row) for row in step["batch"]]
        if "code" in step:
            names = () if database else step["names"]  # a warehouse names the state, not the keys
            with refused(step["code"], *names):
                state.apply(step["txid"], batch)
        else:
            state.apply(step["txid"], batch)
            expected = [typed(state.aggregate, row) for row in step["expect"]]
        assert comparable(state.rows()) == comparable(expected)
        if "report" in step:
            assert comparable(state.report()) == comparable(
                [report_row(state.aggregate, row) for row in step["report"]]
            )


# ---- rows as JSON has them, as Python has them, as values of the core


def types_of(aggregate: PersistentAggregate) -> dict[str, str]:
    types = {"txid": "bigint", "prev_txid": "bigint", "removed": "boolean"}
    types |= {key.name: key.type for key in aggregate.keys}
    for column in aggregate.columns:
        types |= {column.name: column.partial.type, PREVIOUS_PREFIX + column.name: column.partial.type}
    return types


def typed(aggregate: PersistentAggregate, row: Row) -> Row:
    types = types_of(aggregate)
    return {name: python_value(types[name], value) for name, value in row.items()}


def report_row(aggregate: PersistentAggregate, row: Row) -> Row:
    types = types_of(aggregate)
    return {name: python_value(types.get(name, "decimal(38,16)"), value) for name, value in row.items()}


def python_value(type_: str, value: Any) -> Any:
    if value is None or isinstance(value, list | float):
        return value
    if type_.startswith("decimal"):
        return Decimal(value)
    convert = {
        "date": date.fromisoformat,
        "timestamp": datetime.fromisoformat,
        "binary": bytes.fromhex,
        "double": float,
    }
    return convert[type_](value) if type_ in convert else value


def comparable(rows: list[Row]) -> list[list[tuple[str, str]]]:
    return sorted(sorted((name, shown(value)) for name, value in row.items()) for row in rows)


def shown(value: Any) -> str:
    if isinstance(value, memoryview):
        value = bytes(value)
    return format(value.normalize(), "f") if isinstance(value, Decimal) else repr(value)


def key_of(aggregate: PersistentAggregate, row: Row) -> tuple[Any, ...]:
    return tuple(row[key.name] for key in aggregate.keys)


def value_of(aggregate: PersistentAggregate, row: Row) -> Any:
    value = None if "removed" in row else tuple(row[column.name] for column in aggregate.columns)
    if aggregate.state.kind is not StateKind.OPAQUE:
        kind = TransactionalValue if aggregate.state.kind is StateKind.TRANSACTIONAL else NonTransactionalValue
        return kind(row["txid"], value)
    prev = tuple(row[PREVIOUS_PREFIX + column.name] for column in aggregate.columns)
    return OpaqueValue(row["txid"], value, None if row["prev_txid"] is None else prev, row["prev_txid"])


def row_of(aggregate: PersistentAggregate, key: tuple[Any, ...], value: Any) -> Row:
    row = {field.name: part for field, part in zip(aggregate.keys, key, strict=True)}
    nothing = (None,) * len(aggregate.columns)
    row |= {column.name: part for column, part in zip(aggregate.columns, value.value or nothing, strict=True)}
    row |= {"removed": True} if value.value is None else {}
    if isinstance(value, OpaqueValue):
        prev = value.prev or nothing
        row |= {PREVIOUS_PREFIX + column.name: part for column, part in zip(aggregate.columns, prev, strict=True)}
        row["prev_txid"] = value.prev_txid
    return {**row, "txid": value.txid}


def as_transaction_would(error: BaseException) -> BaseException:
    """The error that `postgres.database.transaction` makes of a driver's error."""
    return translate(error) if isinstance(error, psycopg2.Error) else error
