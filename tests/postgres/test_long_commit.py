"""A commit that takes longer than its lease is left alone while it works, wherever it works; one that hangs is ended (R5, R6)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import pytest
from postgres_bench import Bench, Calls, words
from sqlalchemy import Engine, text
from support import LogSpout, code, record_batch, run, word_count

from txbatch import OpaqueState
from txbatch.core.errors import Incomplete, LeaseHeld, Unavailable
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.database.engine import connect
from txbatch.postgres.ledger import PostgresLedger
from txbatch.postgres.state import copy_in
from txbatch.postgres.tables import batch_lock

pytestmark = pytest.mark.rule("R5", "R6")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_lock, "PATIENCE_SECONDS", 0.15)
    monkeypatch.setattr(batch_lock, "WAIT_SECONDS", 0.15)
    monkeypatch.setattr(batch_lock, "BEAT_SECONDS", 0.02)


def slow(engine: Engine) -> None:
    """The upsert goes on until `let_go`."""
    with engine.begin() as connection:
        for statement in (
            "CREATE TABLE public.held ()",
            "INSERT INTO public.held DEFAULT VALUES",
            """CREATE FUNCTION state.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                   WHILE EXISTS (SELECT FROM public.held) LOOP PERFORM pg_catalog.pg_sleep(0.01); END LOOP;
                   RETURN NEW; END $$""",
            "CREATE TRIGGER slow BEFORE INSERT ON state.word_count FOR EACH ROW EXECUTE FUNCTION state.slow()",
        ):
            connection.execute(text(statement))


def let_go(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM public.held"))


def committing(bench: Bench, partials: Any = None, is_there: str = "state = 'active'") -> Calls:
    """A commit is at work, and its lease is over."""
    batch, calls = bench.ledger.batch("word_count", 1), Calls()
    arrow = {"word_count": partials or [record_batch(bench.topology.aggregates[0], words(dog=1)["word_count"])]}
    calls.start("commit", lambda: PostgresLedger.commit(bench.ledger, bench.topology, batch, arrow).applied)
    found = f"SELECT FROM pg_stat_activity WHERE application_name LIKE 'txbatch commit%' AND {is_there}"
    deadline = time.monotonic() + 10
    while not bench.rows(found):
        assert time.monotonic() < deadline, calls.answers
        time.sleep(0.01)
    return calls


def emitted(bench: Bench) -> None:
    bench.emitted(words(dog=1))
    bench.run("UPDATE txbatch.batch SET lease_until = now() - interval '1 s'")


def refused(bench: Bench) -> None:
    """Nobody ends it: neither another run that wants the batch, nor its own."""
    batch = bench.ledger.batch("word_count", 1)
    assert bench.ledger.adopt(batch, run("other")) is None
    with pytest.raises(LeaseHeld, match="attempt 1:1 of run is being committed; wait until it ends"):
        bench.ledger.start_attempt(batch, run("run"), code())


def test_one_that_computes(bench: Bench) -> None:
    slow(bench.engine)
    emitted(bench)
    calls = committing(bench, is_there="wait_event = 'PgSleep'")
    refused(bench)
    let_go(bench.engine)
    assert calls.join() == {"commit": True}


@pytest.mark.rule("R21")
def test_one_that_waits_for_a_warehouse(engine: Engine, databases: Callable[[str], str]) -> None:
    topology = word_count(LogSpout({"a": 1000}), state=OpaqueState("word_count", database="warehouse"))
    bench = Bench(engine, topology, Warehouses(databases))
    warehouse = bench.ledger.warehouses.engine("warehouse")
    slow(warehouse)
    emitted(bench)
    calls = committing(bench, is_there="state = 'idle in transaction'")
    refused(bench)
    let_go(warehouse)
    assert calls.join() == {"commit": True}
    assert bench.ledger.batch("word_count", 1).status == "committed"


def test_one_that_loads(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL waits for its client whenever it is looked at, but rows come."""
    monkeypatch.setattr(copy_in, "SORTED_ROWS", 1)
    over, many = Event(), record_batch(bench.topology.aggregates[0], words(dog=1)["word_count"] * 5000)

    def rows() -> Iterator[Any]:
        while not over.wait(0.01):
            yield many

    emitted(bench)
    calls = committing(bench, rows(), is_there="wait_event = 'ClientRead' AND query LIKE 'COPY%'")
    try:
        refused(bench)
    finally:
        over.set()
    assert isinstance(calls.join()["commit"], Incomplete)  # which got to its end


@pytest.mark.parametrize("who", ["adopt", "attempt"])
def test_one_that_hangs_while_it_loads_is_ended(bench: Bench, who: str) -> None:
    emitted(bench)
    batch = bench.ledger.batch("word_count", 1)

    def rows() -> Iterator[Any]:
        deadline = time.monotonic() + 10
        while not bench.rows("SELECT FROM txbatch.batch WHERE lease_run = 'other'") and time.monotonic() < deadline:
            time.sleep(0.05)
        yield from ()

    calls = committing(bench, rows(), is_there="wait_event = 'ClientRead' AND query LIKE 'COPY%'")
    if who == "adopt":
        assert bench.ledger.adopt(batch, run("other")) is not None
    else:
        assert bench.ledger.start_attempt(batch, run("other"), code()).attempt.attempt_id == 2
    assert isinstance(calls.join()["commit"], Unavailable)


def test_a_session_that_is_gone_ends_the_beat(engine: Engine, postgres_url: str) -> None:
    with connect(postgres_url).connect() as connection, batch_lock.beating(connection):
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        with engine.begin() as other:
            other.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})
        time.sleep(0.1)
        connection.invalidate()
