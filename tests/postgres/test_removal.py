"""Removal of keys in SQL and in Python: the same rows after any history, also of attempts apart that failed (R9, R21)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine
from support import LogSpout, code, record_batch, staged

from txbatch import Count, NonTransactionalState, OpaqueState, Topology, TransactionalState
from txbatch.core.aggregates.merger import Merger
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.state.state import OpaqueValue, StateKind
from txbatch.core.state.update import Updater
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.postgres.database.engine import execute
from txbatch.postgres.state.statements import statements_of
from txbatch.postgres.state.writer import ApartWriter, LedgerWriter, OpaqueReplay

# A partial: what counts (None: nothing), whether the key is removed.
CHANGES = st.tuples(st.none() | st.integers(1, 9), st.booleans()).filter(lambda each: each != (None, False))
BATCH = st.lists(st.tuples(st.sampled_from("abc"), CHANGES), max_size=5)
# Per txid the batches of its attempts, of which the last one counts.
HISTORY = st.lists(st.lists(BATCH, min_size=1, max_size=3), max_size=5)
few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
STATES = {each.kind: each for each in (NonTransactionalState, TransactionalState, OpaqueState)}


class Both:
    """One state, as rows of PostgreSQL and as values of the core."""

    def __init__(self, connection: Connection, kind: StateKind, *, apart: bool) -> None:
        stream = Topology("t").new_stream("words", LogSpout({"a": 1}))
        self.aggregate: PersistentAggregate = stream.group_by("word").persistent_aggregate(
            STATES[kind]("s", contributions=False), guarantee="at_least_once", remove="true", count=Count()
        )
        self.connection, self.apart, self.kind = connection, apart, kind
        self.statements, self.values = statements_of(self.aggregate), dict[Any, Any]()
        connection.connection.rollback()  # of the history before: nothing is ever committed
        execute(connection, self.statements.create_state())

    def apply(self, txid: int, batch: Any, *, replay: bool) -> None:
        partials = [((key,), (value, removed, value is not None)) for key, (value, removed) in batch]
        said = staged(self.aggregate, partials)
        assignment = Assignment("t", TransactionAttempt(txid, 1), "token", {"streams": {}}, code())
        there = OpaqueReplay if replay else ApartWriter
        writer = (there if self.apart else LedgerWriter)(self.connection, self.statements, assignment)
        writer.apply(writer.load([record_batch(self.aggregate, partials)], said))
        execute(self.connection, f"DROP TABLE {self.statements.staged}")
        updater = Updater(self.kind, Merger(self.aggregate.merges), self.apart)
        self.values = updater.update(self.values, self.aggregate.changes(partials), txid).applied(self.values)

    def check(self) -> None:
        previous = ", prev_count, prev_txid" if self.kind is StateKind.OPAQUE else ""
        rows = execute(self.connection, f"SELECT word, count, txid, counted{previous} FROM {self.statements.state}")
        assert sorted(map(tuple, rows.fetchall())) == sorted(_row(key, value) for (key,), value in self.values.items())


def _row(key: str, value: Any) -> tuple[Any, ...]:
    count = value.value[0] if value.value else None
    row = (key, count, value.txid, value.value is not None)
    return (*row, value.prev[0] if value.prev else None, value.prev_txid) if isinstance(value, OpaqueValue) else row


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as connection:
        yield connection


@pytest.mark.rule("R9")
@pytest.mark.parametrize("kind", list(StateKind))
@few
@given(history=HISTORY)
def test_in_the_ledgers_database(connection: Connection, kind: StateKind, history: Any) -> None:
    both = Both(connection, kind, apart=False)
    for txid, attempts in enumerate(history, 1):
        both.apply(txid, attempts[-1], replay=False)
        both.check()


@pytest.mark.rule("R9", "R21")
@few
@given(history=HISTORY)
def test_apart_with_attempts_that_failed(connection: Connection, history: Any) -> None:
    both = Both(connection, StateKind.OPAQUE, apart=True)
    for txid, attempts in enumerate(history, 1):
        for number, batch in enumerate(attempts):
            both.apply(txid, batch, replay=number > 0)
            both.check()
