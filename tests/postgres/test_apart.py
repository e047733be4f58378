"""States apart in real databases (R21): zombies that are cut off from the ledger, lost answers, other servers, other roles."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import psycopg2
import pytest
from postgres_bench import Bench, Calls, words
from sqlalchemy import Engine, text
from support import LogSpout, code, manifest_of, record_batch, run, word_count

from txbatch import (
    Count,
    Max,
    NonTransactionalState,
    OpaqueState,
    SpoutKind,
    Sum,
    Topology,
    TransactionalState,
    failpoints,
)
from txbatch.core.batch.manifest import StagedState
from txbatch.core.batch.transaction import Assignment, Batch
from txbatch.core.errors import (
    BadRecord,
    BrokenChain,
    DefinitionError,
    Incomplete,
    OutcomeUnknown,
    SchemaMismatch,
    StaleAttempt,
    StateAhead,
    TakenBack,
    TerminalError,
    Unavailable,
)
from txbatch.core.protocol.commit import StatePlan
from txbatch.embedded import postgres
from txbatch.postgres.apart.warehouses import Warehouses, identity_of
from txbatch.postgres.corrections.retention import Retention
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.postgres.schema import state_tables

pytestmark = pytest.mark.rule("R21")
Databases = Callable[[str], str]


class Apart(Bench):
    """A ledger and a warehouse."""

    def __init__(self, engine: Engine, databases: Databases, topology: Topology | None = None) -> None:
        super().__init__(engine, topology or in_warehouse(), Warehouses(databases))
        self.warehouse = self.ledger.warehouses.engine("warehouse")

    def there(self, statement: str = "SELECT word, count, txid FROM state.word_count ORDER BY 1") -> list[Any]:
        with self.warehouse.connect() as connection:
            return [tuple(row) for row in connection.execute(text(statement))]

    def last(self) -> tuple[Any, ...]:
        (found,) = self.there("SELECT txid || ':' || attempt_id, status FROM txbatch.apart")
        return found

    def zombie(self, assignment: Assignment, partials: Any) -> None:
        """An attempt that had passed the ledger's checks, was cut off from it, and gets to the warehouse now."""
        arrow = {"word_count": [record_batch(self.topology.aggregates[0], partials["word_count"])]}
        with self.engine.connect() as connection:  # never committed
            manifest = manifest_of(self.topology, assignment, partials)
            states = [StatePlan(self.topology.aggregates[0], manifest.states["word_count"])]
            self.ledger.warehouses.commit(connection, assignment, states, arrow)


def in_warehouse(state: Any = OpaqueState, kind: SpoutKind = SpoutKind.OPAQUE, **aggregates: Any) -> Topology:
    spout = LogSpout({"a": 1_000_000}, kind=kind)
    return word_count(spout, state=state("word_count", database="warehouse"), **aggregates)


@pytest.fixture
def bench(engine: Engine, databases: Databases) -> Apart:
    return Apart(engine, databases)


@pytest.mark.rule("R22")
def test_without_contributions_there_is_nothing_to_fold(bench: Apart) -> None:
    bench.whole(words(dog=1), "1")
    bench.whole(words(dog=1), "2")
    assert list(Retention(bench.engine).fold("word_count", 2)) == []


@pytest.fixture
def holding(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], tuple[Event, Event]]]:
    """Whoever gets to the failpoint first waits there: `reached` and `go_on`."""
    held: dict[str, tuple[Event, Event]] = {}

    def hit(name: str) -> None:
        reached, go_on = held.get(name, (None, None))
        if reached is not None and go_on is not None and not reached.is_set():
            reached.set()
            assert go_on.wait(60)

    monkeypatch.setattr(failpoints, "hit", hit)

    def hold(point: str) -> tuple[Event, Event]:
        held[point] = (Event(), Event())
        return held[point]

    yield hold
    for _, go_on in held.values():
        go_on.set()


def cut_off(bench: Apart) -> None:
    """End every session of the ledger, as a network or a server does."""
    with bench.engine.connect() as connection:
        mine = "datname = current_database() AND pid <> pg_backend_pid()"
        connection.execute(text(f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE {mine}"))


def wait_for_lock(bench: Apart) -> None:
    """Until a session waits for another in the warehouse, by the server's own account."""
    deadline = time.monotonic() + 30
    blocked = "datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
    while bench.there(f"SELECT count(*) FROM pg_stat_activity WHERE {blocked}") != [(1,)]:
        assert time.monotonic() < deadline, "nobody waits"


def again(bench: Apart, batch: Batch, partials: Any) -> Batch:
    """A newer attempt, ready to commit."""
    assignment = bench.ledger.start_attempt(batch, run("run"), code())
    return bench.ledger.record_manifests([(assignment, manifest_of(bench.topology, assignment, partials))])[0]


# ---- zombies


def test_a_commit_that_is_cut_off_from_the_ledger_takes_its_work_there_back(bench: Apart, holding: Any) -> None:
    """Its lock on the batch is gone: a newer attempt may have begun."""
    batch, calls = bench.emitted(words(dog=99)), Calls()
    reached, go_on = holding("commit.apart_loaded")
    calls.start("zombie", lambda: bench.commit(batch, words(dog=99)))
    assert reached.wait(30)
    cut_off(bench)
    go_on.set()
    assert isinstance(calls.join()["zombie"], Unavailable)
    assert (bench.there(), bench.last()) == ([], ("0:0", "taken_back"))
    assert bench.commit(batch, words(dog=99))


def test_a_newer_attempt_waits_for_the_zombie_and_takes_its_work_back(
    bench: Apart, holding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The zombie was cut off after its last look at the ledger: its commit in the warehouse goes through."""
    bench.whole(words(dog=1), "0")
    batch, calls = bench.emitted(words(dog=99, cat=1)), Calls()
    monkeypatch.setattr("txbatch.postgres.apart.warehouses.still_there", lambda _: None)
    reached, go_on = holding("commit.apart_loaded")
    calls.start("zombie", lambda: bench.commit(batch, words(dog=99, cat=1)))
    assert reached.wait(30)
    cut_off(bench)
    newer = again(bench, batch, words(dog=5))
    calls.start("newer", lambda: bench.commit(newer, words(dog=5)))
    wait_for_lock(bench)
    go_on.set()
    answers = calls.join()
    assert isinstance(answers["zombie"], Unavailable)
    assert answers["newer"] is True
    assert (bench.there(), bench.last()) == ([("dog", 6, 2)], ("2:2", "applied"))


@pytest.mark.parametrize("state", [OpaqueState, TransactionalState, NonTransactionalState])
def test_a_zombie_that_comes_after_the_newer_attempt_changes_nothing(
    engine: Engine, databases: Databases, state: Any
) -> None:
    bench = Apart(engine, databases, in_warehouse(state, SpoutKind.TRANSACTIONAL))
    zombie, _ = bench.ledger.newest_attempt(bench.emitted(words(dog=1)))
    newer = again(bench, bench.planned(), words(dog=1))
    assert bench.commit(newer, words(dog=1))
    with pytest.raises(StaleAttempt, match="has applied attempt 1:2: attempt 1:1 may change nothing there"):
        bench.zombie(zombie, words(dog=1))
    bench.whole(words(dog=1), "2")
    with pytest.raises(StateAhead, match="is already at txid 2, the batch is txid 1"):
        bench.zombie(zombie, words(dog=1))
    assert (bench.there(), bench.last()) == ([("dog", 2, 2)], ("2:1", "applied"))


def test_a_zombie_that_comes_after_the_abort_changes_nothing(bench: Apart) -> None:
    """Though nothing of it had been there before."""
    bench.whole(words(dog=1), "1")
    zombie, _ = bench.ledger.newest_attempt(bench.emitted(words(dog=99), "2"))
    bench.ledger.abort("word_count", 2, "wrong")
    with pytest.raises(TakenBack, match="has taken back attempt 2:1: attempt 2:1 may change nothing there"):
        bench.zombie(zombie, words(dog=99))
    bench.whole(words(dog=1), "3")
    with pytest.raises(StateAhead):
        bench.zombie(zombie, words(dog=99))
    assert (bench.there(), bench.last()) == ([("dog", 2, 3)], ("3:1", "applied"))


def test_a_zombie_that_comes_after_its_records_were_given_up(engine: Engine, databases: Databases) -> None:
    """Found by the model: the batch could neither continue, nor be taken back from a transactional state."""
    bench = Apart(engine, databases, in_warehouse(TransactionalState, SpoutKind.TRANSACTIONAL))
    bench.planned("1")
    bench.ledger.abort("word_count", 1, "wrong")
    batch = bench.emitted(words(dog=99), "2")
    zombie, _ = bench.ledger.newest_attempt(batch)
    assert bench.ledger.skip("word_count", 1, "poison").txid == 3
    with pytest.raises(TakenBack, match="has taken back attempt 2:1"):
        bench.zombie(zombie, words(dog=99))
    with pytest.raises(BrokenChain):
        bench.commit(batch, words(dog=99))
    bench.ledger.abort("word_count", 2, "broken")
    bench.whole(words(dog=1), "4")
    assert (bench.there(), bench.last()) == ([("dog", 1, 4)], ("4:1", "applied"))


# ---- the warehouse does not answer


@pytest.mark.parametrize("arrives", [True, False])
def test_a_lost_answer_of_the_warehouse_is_unknown_and_the_last_writer_knows(
    bench: Apart, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    batch = bench.emitted(words(dog=1))

    def lose_the_answer(dbapi_connection: Any) -> None:
        if arrives:
            dbapi_connection.commit()
        dbapi_connection.close()
        raise psycopg2.OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as patched:
        patched.setattr(bench.warehouse.dialect, "do_commit", lose_the_answer)
        with pytest.raises(OutcomeUnknown, match="the answer to COMMIT in database 'warehouse' was lost"):
            bench.commit(batch, words(dog=1))
    assert bench.there() == ([("dog", 1, 1)] if arrives else [])
    assert bench.commit(batch, words(dog=1)) is True
    assert (bench.there(), bench.last()) == ([("dog", 1, 1)], ("1:1", "applied"))
    assert bench.commit(batch, words(dog=1)) is False


def test_a_warehouse_that_is_away_fails_the_commit_and_the_abort(bench: Apart, databases: Databases) -> None:
    batch = bench.emitted(words(dog=1))
    there = bench.ledger.warehouses
    bench.ledger.warehouses = Warehouses(lambda _: "postgresql://nobody@127.0.0.1:1/none")
    for call in (
        lambda: bench.commit(batch, words(dog=1)),
        lambda: bench.ledger.abort("word_count", 1, "wrong"),
        lambda: bench.ledger.register(bench.topology, "jobs/job.py"),
    ):
        with pytest.raises(Unavailable, match="try again"):
            call()
    bench.ledger.warehouses = there
    assert bench.commit(batch, words(dog=1))


def test_a_database_that_nobody_has_named_is_a_clear_error(engine: Engine) -> None:
    with pytest.raises(DefinitionError, match="database 'warehouse'"):
        Bench(engine, in_warehouse())
    assert LedgerReader(engine).status() == []


# ---- what is checked there is what is checked here


def test_a_partial_changed_on_the_way_to_the_warehouse_is_noticed(bench: Apart) -> None:
    lies = {"word_count": StagedState((), 1, {"count": "4"})}
    batch = bench.emitted(words(dog=1), states=lies)
    with pytest.raises(Incomplete, match=r"loaded as rows and totals .*'1'.*the manifest says"):
        bench.commit(batch, words(dog=1))
    assert (bench.there(), bench.last()) == ([], ("0:0", "taken_back"))


def test_a_row_changed_by_hand_is_noticed(bench: Apart) -> None:
    bench.whole(words(dog=1), "1")
    with bench.warehouse.begin() as connection:
        connection.execute(text("UPDATE state.word_count SET txid = 2"))
    batch = bench.emitted(words(dog=1), "2")
    with pytest.raises(StateAhead, match="the row is at txid 2, the batch is txid 2: state changed outside the ledger"):
        bench.commit(batch, words(dog=1))
    assert bench.last() == ("1:1", "applied")


def test_a_value_out_of_range_there_changes_nothing_here(engine: Engine, databases: Databases) -> None:
    topology = in_warehouse()
    topology.streams["words"].group_by("word").persistent_aggregate(OpaqueState("inside"), count=Count())
    bench = Apart(engine, databases, topology)
    both = {**words(dog=2**63 - 1), "inside": words(dog=1)["word_count"]}
    bench.whole(both, "1")
    batch = bench.emitted(both, "2")
    with pytest.raises(BadRecord, match="out of range"):
        bench.commit(batch, both)
    assert bench.rows("SELECT count, txid FROM state.inside") == [(1, 1)]
    assert bench.there() == [("dog", 2**63 - 1, 1)]


def test_sums_of_doubles_may_differ_from_attempt_to_attempt(engine: Engine, databases: Databases) -> None:
    """They are approximate: a transactional state tells a replay by everything else."""
    spout = LogSpout({"a": 100})
    spout.fields = "word string, size double"
    values = {"size": Sum("size", approximate=True), "top": Max("size")}
    topology = word_count(spout, state=TransactionalState("word_count", database="warehouse"), **values)
    bench = Apart(engine, databases, topology)

    def sizes(total: float, top: float) -> Any:
        return {"word_count": [(("dog",), (total, top))]}

    batch = bench.emitted(sizes(0.3, 0.2))
    assignment, _ = bench.ledger.newest_attempt(batch)
    with bench.engine.connect() as connection:
        arrow = {"word_count": [record_batch(topology.aggregates[0], sizes(0.3, 0.2)["word_count"])]}
        manifest = manifest_of(topology, assignment, sizes(0.3, 0.2))
        states = [StatePlan(topology.aggregates[0], manifest.states["word_count"])]
        bench.ledger.warehouses.commit(connection, assignment, states, arrow)
    with pytest.raises(TerminalError, match="brings something else"):
        bench.commit(again(bench, batch, sizes(0.3, 0.1)), sizes(0.3, 0.1))
    newer = again(bench, batch, sizes(0.1 + 0.2, 0.2))
    assert bench.commit(newer, sizes(0.1 + 0.2, 0.2))
    assert bench.there("SELECT size, top FROM state.word_count") == [(0.3, 0.2)]


# ---- servers, roles, definitions


def test_a_warehouse_on_another_server(engine: Engine, tmp_path: Path) -> None:
    home = tmp_path / "other"
    try:
        bench = Apart(engine, lambda _: postgres.start(home))
        bench.whole(words(dog=1), "1")
        bench.whole(words(dog=1), "2")
        assert bench.there() == [("dog", 2, 2)]
        batch = bench.emitted(words(dog=1), "3")
        postgres.stop(home)
        with pytest.raises(Unavailable):
            bench.commit(batch, words(dog=1))
        postgres.start(home)
        assert bench.commit(batch, words(dog=1))
        assert bench.there() == [("dog", 3, 3)]
    finally:
        postgres.stop(home)


def test_the_warehouse_has_the_report_and_the_ledger_has_no_table(bench: Apart) -> None:
    bench.whole(words(dog=1))
    assert bench.there("SELECT word, count, txid FROM report.word_count") == [("dog", 1, 1)]
    assert bench.rows("SELECT to_regclass('state.word_count'), to_regclass('report.word_count')") == [(None, None)]
    assert bench.rows("SELECT database, applied_txid FROM txbatch.state") == [("warehouse", 1)]
    assert bench.rows("SELECT keys ->> 'word_count' FROM txbatch.batch") == [("1",)]


def test_two_topologies_in_one_warehouse(engine: Engine, databases: Databases) -> None:
    for name in ("one", "other"):
        topology = word_count(LogSpout({"a": 100}), name, state=OpaqueState(name, database="warehouse"))
        bench = Apart(engine, databases, topology)
        bench.whole({name: words(dog=1)["word_count"]})
    assert bench.there("SELECT state, txid FROM txbatch.apart ORDER BY 1") == [("one", 1), ("other", 1)]


def test_a_warehouse_becomes_a_ledger_too(bench: Apart) -> None:
    """And the ledger's own database may be named as another one."""
    from txbatch.postgres.database.migrate import migrate

    bench.whole(words(dog=1))
    assert migrate(bench.warehouse)
    inner = Apart(bench.warehouse, lambda _: bench.warehouse.url.render_as_string(hide_password=False), other())
    inner.whole({"other": words(dog=1)["word_count"]})
    assert inner.there("SELECT word, count FROM report.other") == [("dog", 1)]


def other() -> Topology:
    return word_count(LogSpout({"a": 100}), "other", state=OpaqueState("other", database="warehouse"))


def test_other_columns_there_are_named(engine: Engine, databases: Databases) -> None:
    bench = Apart(engine, databases)
    with bench.warehouse.begin() as connection:
        changed = """UPDATE txbatch.apart SET columns = '{"keys": [["word", "string"]], "values": []}'"""
        connection.execute(text(changed))
    with pytest.raises(SchemaMismatch, match=r"'warehouse' is defined otherwise now: value 'count' .* is new \(bigint"):
        bench.ledger.register(bench.topology, "jobs/job.py")


def test_drop_takes_the_warehouse_along(bench: Apart) -> None:
    bench.whole(words(dog=1))
    with transaction(bench.engine) as connection:
        bench.ledger.warehouses.drop(connection, "word_count")
        state_tables.drop(connection, "word_count")
    assert bench.there("SELECT count(*) FROM txbatch.apart") == [(0,)]
    assert bench.there("SELECT to_regclass('state.word_count'), to_regclass('report.word_count')") == [(None, None)]
    bench.ledger.register(bench.topology, "jobs/job.py")
    assert bench.whole(words(dog=1)).txid == 1


def test_what_was_left_in_the_warehouse_is_not_taken_for_new(bench: Apart) -> None:
    bench.whole(words(dog=1))
    with transaction(bench.engine) as connection:
        state_tables.drop(connection, "word_count")
    with pytest.raises(SchemaMismatch, match=r"is at txid 1, though it is new to the ledger.*--database warehouse"):
        bench.ledger.register(bench.topology, "jobs/job.py")
    warehouses, own = bench.ledger.warehouses, identity_of(bench.engine)
    assert [dict(row) for row in warehouses.owners("warehouse", "word_count")] == [
        {"ledger": own, "states": ["word_count"], "txid": 1}
    ]
    assert warehouses.drop_in("warehouse", "word_count", str(uuid4())) == []
    assert warehouses.drop_in("warehouse", "word_count", own) == ["word_count"]
    bench.ledger.register(bench.topology, "jobs/job.py")
    assert bench.whole(words(dog=1)).txid == 1


def test_a_reader_role_sees_the_report_alone(bench: Apart, postgres_server: str) -> None:
    """As docs/run/states-apart.md says."""
    bench.whole(words(dog=1))
    role = f"reader_of_{bench.warehouse.url.database}"
    with bench.warehouse.begin() as connection:
        for statement in (
            f"CREATE ROLE {role} LOGIN",
            f"GRANT USAGE ON SCHEMA report TO {role}",
            f"GRANT SELECT ON ALL TABLES IN SCHEMA report TO {role}",
        ):
            connection.execute(text(statement))
    reader = connect(bench.warehouse.url.set(username=role).render_as_string(hide_password=False))
    try:
        with reader.connect() as connection:
            assert [tuple(row) for row in connection.execute(text("SELECT word, count FROM report.word_count"))] == [
                ("dog", 1)
            ]
            with pytest.raises(Exception, match="permission denied"):
                connection.execute(text("SELECT * FROM state.word_count"))
    finally:
        reader.dispose()
        with bench.warehouse.begin() as connection:
            connection.execute(text(f"DROP OWNED BY {role}"))
            connection.execute(text(f"DROP ROLE {role}"))


def test_query_reads_the_warehouse(bench: Apart) -> None:
    bench.whole(words(dog=1))
    found = LedgerReader(bench.engine, bench.ledger.warehouses).query("word_count", [["dog"], ["cat"]])
    assert [(row["word"], row["found"], row["count"]) for row in found] == [("dog", True, 1), ("cat", False, None)]


def test_status_tells_which_of_both_databases_was_set_back(bench: Apart) -> None:
    bench.whole(words(dog=1))
    reader = LedgerReader(bench.engine, bench.ledger.warehouses)
    assert reader.half_committed("word_count") == []
    told = {
        "the ledger does not know: the ledger was set back": "token = 'another'",
        "has committed txid 1 there: the database was set back": "status = 'taken_back'",
    }
    for problem, change in told.items():
        with bench.warehouse.begin() as connection:
            connection.execute(text(f"UPDATE txbatch.apart SET {change}"))
        (found,) = reader.half_committed("word_count")
        assert problem in found["problem"]


def test_check_finds_a_warehouse_that_was_set_back(bench: Apart) -> None:
    bench.whole(words(dog=1))

    def check() -> str:
        with transaction(bench.engine) as connection:
            return bench.ledger.warehouses.check(connection)

    assert check() == "1 states in warehouse"
    with bench.warehouse.begin() as connection:
        connection.execute(text("UPDATE txbatch.apart SET status = 'taken_back'"))
    with pytest.raises(TerminalError, match="the database was set back"):
        check()
