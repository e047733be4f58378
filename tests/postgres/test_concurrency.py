"""Two sessions at once, a connection that is cut, a report that stays open (R1, R5, R6, R10)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from threading import Barrier, Event
from typing import Any

import psycopg2
import pytest
from postgres_bench import Bench, Calls, raw_connection, words
from sqlalchemy import Engine
from sqlalchemy import event as events
from support import LogSpout, code, manifest_of, record_batch, run, word_count

from txbatch import SpoutKind, failpoints
from txbatch.core.batch.transaction import Batch, BatchStatus
from txbatch.core.errors import (
    AlreadyCommitted,
    BrokenChain,
    LeaseHeld,
    NotItsTurn,
    OutcomeUnknown,
    StaleAttempt,
    TerminalError,
    Unavailable,
)
from txbatch.core.protocol import coordinator
from txbatch.postgres.database import engine as engine_module
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.ledger import PostgresLedger
from txbatch.postgres.schema import state_tables


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch, point: str) -> Iterator[tuple[Event, Event]]:
    """Whoever gets to this failpoint first waits there; yields `reached` and `go_on`."""
    reached, go_on = Event(), Event()

    def hit(name: str) -> None:
        if name == point and not reached.is_set():
            reached.set()
            assert go_on.wait(60)

    monkeypatch.setattr(failpoints, "hit", hit)
    try:
        yield reached, go_on
    finally:
        go_on.set()


def wait_for_lock(bench: Bench, waiting: int = 1) -> None:
    """Until so many sessions of the ledger wait for a lock, by the server's own account."""
    deadline = time.monotonic() + 30
    waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
    while bench.rows(waits) != [(waiting,)]:
        assert time.monotonic() < deadline, "nobody waits"


# ---- R1: two plan at once


@pytest.mark.rule("R1")
@pytest.mark.parametrize("runs", [2, 5])
def test_runs_that_plan_at_once_get_consecutive_txids_and_ranges(engine: Engine, runs: int) -> None:
    together, first = Barrier(runs), threading.local()

    class Together(LogSpout):
        """All have read the same head before any of them plans."""

        def partitions(self) -> Any:
            if not hasattr(first, "done"):
                first.done = True
                together.wait(30)
            return super().partitions()

    topology = word_count(Together({"a": 1000, "b": 1000}), max_pending=runs)
    ledger, calls = PostgresLedger(engine), Calls()
    ledger.register(topology, "jobs/job.py")
    for number in range(runs):
        calls.start(str(number), lambda n=number: coordinator.initialize_transaction(ledger, topology, run(str(n))))
    batches = sorted(calls.join().values(), key=lambda batch: batch.txid)
    assert [batch.txid for batch in batches] == list(range(1, runs + 1))
    for partition in "ab":
        ranges = [batch.metadata["streams"]["words"]["partitions"][partition] for batch in batches]
        assert [(each["start"], each["end"]) for each in ranges] == [(10 * n, 10 * n + 10) for n in range(runs)]


@pytest.mark.rule("R2")
def test_the_same_run_twice_at_once_has_one_batch(engine: Engine) -> None:
    together = Barrier(2)
    topology = word_count(LogSpout({"a": 1000}), max_pending=5)
    ledger, calls = PostgresLedger(engine), Calls()
    ledger.register(topology, "jobs/job.py")
    head = ledger.head("word_count", run("run"))
    for name in ("one", "other"):
        calls.start(name, lambda: (together.wait(30), ledger.plan(head, run("run"), {"streams": {}}))[1])
    answers = list(calls.join().values())
    assert answers.count(None) == 1
    assert coordinator.initialize_transaction(ledger, topology, run("run")).txid == 1


@pytest.mark.rule("R1")
def test_a_plan_waits_for_a_plan_under_way(bench: Bench, postgres_url: str) -> None:
    bench.topology.max_pending = 2
    other, calls = raw_connection(postgres_url), Calls()
    with other.cursor() as cursor:
        cursor.execute("SELECT FROM txbatch.topology WHERE topology = 'word_count' FOR UPDATE")
    calls.start("plan", lambda: bench.planned("1"))
    wait_for_lock(bench)
    other.rollback()
    assert calls.join()["plan"].txid == 1


def test_the_head_is_one_snapshot(bench: Bench) -> None:
    """A batch planned while the head is read is in all of it or in none."""
    bench.topology.max_pending = 9
    statements = 0

    @events.listens_for(bench.engine, "after_cursor_execute")
    def plan_one_more(*_: Any) -> None:
        nonlocal statements
        statements += 1
        if statements == 1:
            calls = Calls()
            calls.start("other", lambda: Bench(connect(str(bench.engine.url)), bench.topology).planned("other"))
            calls.join()

    head = bench.ledger.head("word_count", run("mine"))
    events.remove(bench.engine, "after_cursor_execute", plan_one_more)
    assert (head.next_txid, head.pending, head.prev, head.offsets) == (1, (), None, {})
    assert bench.planned("mine").txid == 2


# ---- R10: two commit at once, R5: a newer attempt meanwhile


@pytest.mark.rule("R10")
def test_two_commits_of_one_batch(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, calls = bench.emitted(words(dog=1)), Calls()
    with held(monkeypatch, "commit.before_commit") as (reached, go_on):
        calls.start("one", lambda: bench.commit(batch, words(dog=1)))
        assert reached.wait(30)
        calls.start("other", lambda: bench.commit(batch, words(dog=1)))
        wait_for_lock(bench)
        go_on.set()
        assert calls.join() == {"one": True, "other": False}
    assert bench.rows("SELECT count FROM state.word_count") == [(1,)]


@pytest.mark.rule("R5", "R16")
@pytest.mark.parametrize("point", ["commit.loaded", "commit.before_commit"])
@pytest.mark.parametrize("other", ["attempt", "abort", "manifest", "adopt"])
def test_whoever_comes_during_a_commit_finds_it_committed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, point: str, other: str
) -> None:
    batch, calls = bench.emitted(words(dog=1)), Calls()
    assignment, manifest = bench.ledger.newest_attempt(batch)
    assert manifest is not None
    call = {
        "attempt": lambda: bench.ledger.start_attempt(batch, run("run"), code()),
        "abort": lambda: bench.ledger.abort("word_count", 1, "why"),
        "manifest": lambda: bench.ledger.record_manifests([(assignment, manifest)])[0],
        "adopt": lambda: bench.ledger.adopt(batch, run("heir")),
    }[other]
    bench.run("UPDATE txbatch.batch SET lease_until = now() - interval '1 s'")
    with held(monkeypatch, point) as (reached, go_on):
        calls.start("commit", lambda: bench.commit(batch, words(dog=1)))
        assert reached.wait(30)
        calls.start("other", call)
        wait_for_lock(bench)
        go_on.set()
        answers = calls.join()
    assert answers["commit"] is True
    assert answers["other"] is None if other == "adopt" else isinstance(answers["other"], TerminalError)
    assert bench.rows("SELECT count FROM state.word_count") == [(1,)]


@pytest.mark.rule("R5")
def test_a_zombie_commits_nothing_once_a_newer_attempt_has_begun(bench: Bench, postgres_url: str) -> None:
    """The commit waits for the batch's row; the newer attempt gets it first."""
    batch, calls = bench.emitted(words(dog=99)), Calls()
    newer = raw_connection(postgres_url)
    with newer.cursor() as cursor:
        cursor.execute("UPDATE txbatch.batch SET fence = fence + 1, token = 'newer', status = 'planned'")
        cursor.execute(
            "INSERT INTO txbatch.attempt (topology, txid, attempt_id, token, run, code)"
            " VALUES ('word_count', 1, 2, 'newer', 'run', 'c')"
        )
    calls.start("zombie", lambda: bench.commit(batch, words(dog=99)))
    wait_for_lock(bench)
    newer.commit()
    answer = calls.join()["zombie"]
    assert isinstance(answer, StaleAttempt)
    assert "attempt 1:1 is not the newest" in str(answer)
    assert bench.rows("SELECT * FROM state.word_count") == []


def test_two_start_an_attempt_at_once(bench: Bench) -> None:
    batch, calls, together = bench.planned(), Calls(), Barrier(2)
    for name in ("one", "other"):
        calls.start(name, lambda: (together.wait(30), bench.ledger.start_attempt(batch, run("run"), code()))[1])
    one, other = calls.join().values()
    assert sorted([one.attempt.attempt_id, other.attempt.attempt_id]) == [1, 2]
    zombie = min(one, other, key=lambda assignment: assignment.attempt)
    with pytest.raises(StaleAttempt):
        bench.ledger.record_manifests([(zombie, manifest_of(bench.topology, zombie, words(dog=1)))])


@pytest.mark.rule("R6")
def test_two_adopt_at_once(bench: Bench) -> None:
    batch, calls, together = bench.planned("dead"), Calls(), Barrier(2)
    bench.run("UPDATE txbatch.batch SET lease_until = now() - interval '1 s'")
    for name in ("one", "other"):
        calls.start(name, lambda n=name: (together.wait(30), bench.ledger.adopt(batch, run(n)))[1])
    answers = calls.join()
    assert list(answers.values()).count(None) == 1
    (heir,) = [name for name, answer in answers.items() if answer is not None]
    assert str(bench.ledger.start_attempt(batch, run(heir), code()).attempt) == "1:1"
    with pytest.raises(LeaseHeld):
        bench.ledger.start_attempt(batch, run("dead"), code())


def test_the_next_txid_does_not_pass_a_commit_under_way(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.topology.max_pending = 2
    first, second = bench.emitted(words(dog=1), "1"), bench.emitted(words(dog=1), "2")
    calls = Calls()
    with held(monkeypatch, "commit.before_commit") as (reached, go_on):
        calls.start("first", lambda: bench.commit(first, words(dog=1)))
        assert reached.wait(30)
        with pytest.raises(NotItsTurn, match="waits for txid 1"):
            bench.commit(second, words(dog=1))
        go_on.set()
        assert calls.join() == {"first": True}
    assert bench.commit(second, words(dog=1))


@pytest.mark.rule("R16")
def test_an_abort_waits_for_a_plan_that_builds_on_the_batch(bench: Bench, postgres_url: str) -> None:
    bench.topology.max_pending = 2
    bench.planned("1")
    planning, calls = raw_connection(postgres_url), Calls()
    with planning.cursor() as cursor:
        cursor.execute("SELECT FROM txbatch.topology WHERE topology = 'word_count' FOR UPDATE")
    calls.start("abort", lambda: bench.ledger.abort("word_count", 1, "why"))
    wait_for_lock(bench)
    assert bench.ledger.batch("word_count", 1).status is BatchStatus.PLANNED
    planning.rollback()
    assert calls.join()["abort"].status is BatchStatus.ABORTED


@pytest.mark.rule("R1", "R16")
def test_a_skip_locks_batches_in_the_order_of_a_train(bench: Bench, postgres_url: str) -> None:
    """From the lowest up, as manifests are recorded: of two that lock in other orders PostgreSQL ends one."""
    bench.topology.max_pending = 2
    bench.planned("1")
    bench.planned("2")
    train, calls = raw_connection(postgres_url), Calls()
    lock = "SELECT FROM txbatch.batch WHERE topology = 'word_count' AND txid = %s FOR UPDATE NOWAIT"
    with train.cursor() as cursor:
        cursor.execute(lock, (1,))
        calls.start("skip", lambda: bench.ledger.skip("word_count", 2, "why"))
        wait_for_lock(bench)
        cursor.execute(lock, (2,))
    train.rollback()
    assert isinstance(calls.join()["skip"], NotItsTurn)


# ---- R10: the connection is cut


def terminate(bench: Bench, url: str) -> None:
    """Kill the sessions of the commit, from a session of its own."""
    connection = raw_connection(url)
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'txbatch %'"
        )
    connection.close()


@pytest.mark.parametrize("point", ["commit.loaded", "commit.before_commit"])
def test_a_connection_cut_before_commit_is_a_failure_and_nothing_happened(
    bench: Bench, postgres_url: str, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    batch = bench.emitted(words(dog=1))
    once = iter([True])
    monkeypatch.setattr(
        failpoints, "hit", lambda name: terminate(bench, postgres_url) if name == point and next(once, False) else None
    )
    with pytest.raises(Unavailable, match="try again"):
        bench.commit(batch, words(dog=1))
    assert bench.rows("SELECT * FROM state.word_count") == []
    assert bench.ledger.batch("word_count", 1).status is BatchStatus.EMITTED
    assert bench.commit(batch, words(dog=1)) is True


def test_a_connection_cut_at_commit_is_unknown_until_the_ledger_is_asked(bench: Bench, postgres_url: str) -> None:
    batch = bench.emitted(words(dog=1))

    @events.listens_for(bench.engine, "commit")
    def cut(*_: Any) -> None:
        terminate(bench, postgres_url)

    with pytest.raises(OutcomeUnknown):
        bench.commit(batch, words(dog=1))
    events.remove(bench.engine, "commit", cut)
    assert bench.ledger.batch("word_count", 1).status is BatchStatus.EMITTED
    assert bench.commit(batch, words(dog=1)) is True


@pytest.mark.rule("R10")
def test_a_lost_answer_to_commit_is_unknown_and_the_ledger_knows(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """COMMIT reaches the server, the answer does not reach us."""
    batch = bench.emitted(words(dog=1))

    def commit_and_lose_the_answer(dbapi_connection: Any) -> None:
        import psycopg2

        dbapi_connection.commit()
        dbapi_connection.close()
        raise psycopg2.OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as patched:
        patched.setattr(bench.engine.dialect, "do_commit", commit_and_lose_the_answer)
        with pytest.raises(OutcomeUnknown, match="the answer to COMMIT was lost; try again"):
            bench.commit(batch, words(dog=1))
    assert bench.commit(batch, words(dog=1)) is False
    assert bench.rows("SELECT count, txid FROM state.word_count") == [(1, 1)]


def test_an_error_in_the_block_is_not_taken_for_an_unknown_outcome(engine: Engine) -> None:
    def fail() -> None:
        with transaction(engine) as connection:
            connection.exec_driver_sql("CREATE TABLE public.x ()")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT to_regclass('public.x')").scalar_one() is None


# ---- settings of the role or the database do not reach us


@pytest.mark.rule("R10")
@pytest.mark.parametrize(
    "setting",
    [
        "default_transaction_isolation = 'serializable'",
        "default_transaction_isolation = 'repeatable read'",
        "default_transaction_read_only = on",
        "statement_timeout = 1",
        "lock_timeout = 1",
        "idle_in_transaction_session_timeout = 1",
        "idle_session_timeout = 1",
        "transaction_timeout = 1",
        "exit_on_error = on",
        "search_path = nowhere",
        "client_encoding = 'LATIN1'",
        "timezone = 'Asia/Kathmandu'",
        "synchronous_commit = off",
        "array_nulls = off",
    ],
)
def test_a_whole_batch_whatever_the_role_is_set_to(bench: Bench, postgres_url: str, setting: str) -> None:
    database = postgres_url.split("/")[3].split("?")[0]
    bench.run(f"ALTER ROLE txbatch IN DATABASE {database} SET {setting}")
    bench.engine.dispose()  # settings are read when a connection is made
    bench.whole(words(**{"dög": 1}), "1")
    bench.whole(words(**{"dög": 1}), "2")
    assert bench.rows("SELECT word, count FROM state.word_count") == [("dög", 2)]
    settings = dict(bench.rows("SELECT name, setting FROM pg_settings"))
    assert settings["transaction_isolation"] == "read committed"
    assert settings["synchronous_commit"] == "on"
    assert settings["exit_on_error"] == "off"
    assert {settings[name] for name in ("transaction_timeout", "idle_session_timeout", "statement_timeout")} == {"0"}


@pytest.mark.rule("R10")
def test_numbers_and_times_are_read_as_they_are_whatever_the_role_is_set_to(engine: Engine, postgres_url: str) -> None:
    database = postgres_url.split("/")[3].split("?")[0]
    with engine.begin() as connection:
        for setting in ("extra_float_digits = -15", "intervalstyle = 'iso_8601'", "datestyle = 'SQL, DMY'"):
            connection.exec_driver_sql(f"ALTER ROLE txbatch IN DATABASE {database} SET {setting}")
    asked = (
        "SELECT 0.1::float8 + 0.2::float8, interval '1 day 2 hours', timestamptz '2026-02-03 04:05Z', date '2026-02-03'"
    )
    with connect(postgres_url).connect() as connection:
        assert tuple(connection.exec_driver_sql(asked).one()) == (
            0.1 + 0.2,
            timedelta(days=1, hours=2),
            datetime(2026, 2, 3, 4, 5, tzinfo=UTC),
            date(2026, 2, 3),
        )


@pytest.mark.parametrize("since", [150000, 990000])
def test_a_server_is_asked_for_the_settings_of_its_version_alone(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, since: int
) -> None:
    """PostgreSQL would log a FATAL for each connection that names one it has not got."""
    monkeypatch.setattr(engine_module, "_SESSION_SINCE", {since: {"geqo_threshold": "7"}})
    known, named, connected = since == 150000, [], psycopg2.connect

    def connecting(*args: Any, **options: Any) -> Any:
        named.append("geqo_threshold" in options["options"])
        return connected(*args, **options)

    monkeypatch.setattr(psycopg2, "connect", connecting)
    engine = connect(postgres_url)
    for _ in range(2):
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SHOW geqo_threshold").scalar_one() == ("7" if known else "12")
            assert connection.exec_driver_sql("SHOW lock_timeout").scalar_one() == "1min"
        engine.dispose()
    assert named == ([False, True, True] if known else [False, False])


@pytest.mark.rule("R9", "R10")
def test_the_loser_of_a_race_sees_what_the_winner_wrote(bench: Bench, postgres_url: str) -> None:
    """Under repeatable read the second commit would not see the first: this is what the setting guards."""
    database = postgres_url.split("/")[3].split("?")[0]
    bench.run(f"ALTER ROLE txbatch IN DATABASE {database} SET default_transaction_isolation = 'repeatable read'")
    bench.engine.dispose()  # settings are read when a connection is made
    bench.topology.max_pending = 2
    waiting, calls = raw_connection(postgres_url), Calls()
    with waiting.cursor() as cursor:
        cursor.execute("SELECT FROM txbatch.topology FOR UPDATE")
        calls.start("1", lambda: bench.planned("1"))
        wait_for_lock(bench)
        calls.start("2", lambda: bench.planned("2"))
        wait_for_lock(bench, 2)
    waiting.rollback()
    assert sorted(batch.txid for batch in calls.join().values()) == [1, 2]


# ---- locks are taken in one order


@pytest.mark.rule("R1", "R16")
def test_a_skip_and_the_manifests_of_a_train_wait_for_each_other_in_one_order(bench: Bench, postgres_url: str) -> None:
    """The skip of the third waits for it first: then the train has the others, and waits for the third."""
    bench.topology.max_pending = 3
    train = [bench.planned(name) for name in "123"]
    begun = [bench.ledger.start_attempt(batch, run(name), code()) for batch, name in zip(train, "123", strict=True)]
    recorded = [(each, manifest_of(bench.topology, each, words(dog=1))) for each in begun]
    waiting, calls = raw_connection(postgres_url), Calls()
    with waiting.cursor() as cursor:
        cursor.execute("SELECT FROM txbatch.batch WHERE txid = 3 FOR UPDATE")
        calls.start("skip", lambda: bench.ledger.skip("word_count", 3, "why"))
        wait_for_lock(bench)
        calls.start("record", lambda: bench.ledger.record_manifests(recorded))
        wait_for_lock(bench, 2)
    waiting.rollback()
    answers = calls.join()
    assert isinstance(answers["skip"], NotItsTurn)
    assert [each.status for each in answers["record"]] == [BatchStatus.EMITTED] * 3


@pytest.mark.rule("R1", "R25")
def test_a_commit_and_an_abort_note_what_is_behind_in_one_order(
    engine: Engine, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit has read b, and could not read a; the abort notes a, and then b."""
    both = word_count(LogSpout({"b": 10, "a": 10}, kind=SpoutKind.OPAQUE), max_pending=3)
    bench = Bench(engine, both)
    lengths = both.streams["words"].spout.lengths  # type: ignore[attr-defined]
    bench.ledger.abort("word_count", bench.planned("0").txid, "both are behind")
    batch = bench.planned("1")
    assignment = bench.ledger.start_attempt(batch, run("1"), code())
    honest = manifest_of(both, assignment, words(dog=1))
    read = {"words": {"b": honest.streams["words"]["b"]}}
    opaque = manifest_of(both, assignment, words(dog=1), streams=read, unreadable={"words": {"a": "away"}})
    batch = bench.ledger.record_manifests([(assignment, opaque)])[0]
    lengths.update(a=20, b=20)
    behind = bench.planned("2")
    waiting, calls = raw_connection(postgres_url), Calls()
    with waiting.cursor() as cursor:
        cursor.execute("SELECT FROM txbatch.behind WHERE partition = 'a' FOR UPDATE")
        calls.start("abort", lambda: bench.ledger.abort("word_count", behind.txid, "why").status)
        wait_for_lock(bench)
        calls.start("commit", lambda: bench.commit(batch, words(dog=1)))
        wait_for_lock(bench, 2)
    waiting.rollback()
    assert calls.join() == {"abort": BatchStatus.ABORTED, "commit": True}


@pytest.mark.rule("R1")
def test_a_topology_is_dropped_once_its_commit_is_done(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would have the tables that the commit comes to next, and wait for the batch that the commit has."""
    batch, calls = bench.emitted(words(dog=1)), Calls()

    def drop() -> list[str]:
        with transaction(bench.engine) as connection:
            return state_tables.drop(connection, "word_count")

    with held(monkeypatch, "commit.loaded") as (reached, go_on):
        calls.start("commit", lambda: bench.commit(batch, words(dog=1)))
        assert reached.wait(30)
        calls.start("drop", drop)
        wait_for_lock(bench)
        go_on.set()
        assert calls.join() == {"commit": True, "drop": ["word_count"]}


@pytest.mark.rule("R1", "R6")
def test_who_waits_for_a_commit_to_adopt_its_batch_keeps_no_plan_waiting(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, calls = bench.emitted(words(dog=1)), Calls()
    bench.run("UPDATE txbatch.batch SET lease_until = now() - interval '1 s'")
    with held(monkeypatch, "commit.before_commit") as (reached, go_on):
        calls.start("commit", lambda: bench.commit(batch, words(dog=1)))
        assert reached.wait(30)
        calls.start("adopt", lambda: bench.ledger.adopt(batch, run("heir")))
        wait_for_lock(bench)
        bench.run("SELECT FROM txbatch.topology FOR NO KEY UPDATE NOWAIT")
        go_on.set()
        assert calls.join() == {"commit": True, "adopt": None}


@pytest.mark.rule("R1", "R16")
@pytest.mark.parametrize("end", ["abort", "skip"])
def test_who_waits_for_a_commit_to_end_its_batch_keeps_no_plan_waiting(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    batch, calls = bench.emitted(words(dog=1)), Calls()
    with held(monkeypatch, "commit.before_commit") as (reached, go_on):
        calls.start("commit", lambda: bench.commit(batch, words(dog=1)))
        assert reached.wait(30)
        calls.start("end", lambda: getattr(bench.ledger, end)("word_count", 1, "wrong"))
        wait_for_lock(bench)
        bench.run("SELECT FROM txbatch.topology FOR NO KEY UPDATE NOWAIT")
        go_on.set()
        answers = calls.join()
    assert answers["commit"] is True
    assert isinstance(answers["end"], AlreadyCommitted)


# ---- reports stay open


def open_report(url: str) -> Any:
    report = raw_connection(url)
    report.set_session(isolation_level="REPEATABLE READ")
    with report.cursor() as cursor:
        cursor.execute("SELECT count(*), sum(count) FROM contribution.word_count")
        cursor.execute("SELECT * FROM report.word_count")
    return report


@pytest.mark.rule("R19")
def test_a_report_neither_blocks_ten_commits_nor_sees_them(bench: Bench, postgres_url: str) -> None:
    bench.whole(words(dog=1), "first")
    report = open_report(postgres_url)
    for number in range(10):
        bench.whole(words(dog=1, cat=1), str(number))
    with report.cursor() as cursor:
        cursor.execute("SELECT * FROM report.word_count")
        assert cursor.fetchall() == [("dog", 1, 1)]
        cursor.execute("SELECT max(txid) FROM report.batches WHERE final")
        assert cursor.fetchall() == [(1,)]
    report.rollback()
    with report.cursor() as cursor:
        cursor.execute("SELECT * FROM report.word_count ORDER BY word")
        assert cursor.fetchall() == [("cat", 10, 11), ("dog", 11, 11)]


def test_partitions_of_the_contributions_are_made_ahead_beside_an_open_report(bench: Bench, postgres_url: str) -> None:
    def partitions() -> list[Any]:
        found = (
            "SELECT relname FROM pg_class WHERE relnamespace = 'contribution_partition'::regnamespace"
            " AND relkind = 'r' ORDER BY 1"
        )
        return [name for (name,) in bench.rows(found)]

    bench.whole(words(dog=1), "1")
    assert partitions() == ["word_count@1"]
    jump_to(bench, 998)
    report = open_report(postgres_url)
    bench.whole(words(dog=1), "999")
    assert partitions() == ["word_count@1", "word_count@1001"]
    for txid in (1000, 1001, 1002):
        assert bench.whole(words(dog=1), str(txid)).txid == txid
    report.rollback()
    placed = "SELECT tableoid::regclass::text, txid FROM contribution.word_count ORDER BY txid"
    first, second = 'contribution_partition."word_count@1"', 'contribution_partition."word_count@1001"'
    assert bench.rows(placed) == [(first, 1), (first, 999), (first, 1000), (second, 1001), (second, 1002)]
    assert bench.rows("SELECT count FROM state.word_count") == [(5,)]


def jump_to(bench: Bench, txid: int) -> None:
    """As if the batches up to this txid had been aborted."""
    bench.run(
        "INSERT INTO txbatch.batch (topology, txid, position, key, metadata, lease_until, status, aborted_at, reason)"
        f" VALUES ('word_count', {txid}, {txid}, 'k', '{{\"streams\": {{}}}}', now(), 'aborted', now(), 'test')"
    )


def test_a_topology_registered_late_finds_its_partition(bench: Bench) -> None:
    jump_to(bench, 5_000)
    topology = word_count(LogSpout({"a": 1_000_000}))
    topology.streams["words"].group_by("word").persistent_aggregate(
        bench_state("late"), count=topology.aggregates[0].aggregates["count"]
    )
    late = Bench(bench.engine, topology)
    partials = {**words(dog=1), "late": [(("dog",), (1,))]}
    assert late.whole(partials, "x").txid == 5_001
    assert late.rows("SELECT tableoid::regclass::text FROM contribution.late") == [
        ('contribution_partition."late@5001"',)
    ]


def bench_state(name: str) -> Any:
    from txbatch import OpaqueState

    return OpaqueState(name)


# ---- what it costs


def test_what_an_empty_batch_costs(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """Printed, not asserted: initialize, attempt, manifest, an empty commit, success."""
    times: list[list[float]] = []
    for number in range(30):
        marks = [time.perf_counter()]
        batch = coordinator.initialize_transaction(bench.ledger, bench.topology, run(str(number)))
        assert isinstance(batch, Batch)
        marks.append(time.perf_counter())
        assignment = bench.ledger.start_attempt(batch, run(str(number)), code())
        marks.append(time.perf_counter())
        emitted = bench.ledger.record_manifests(
            [(assignment, manifest_of(bench.topology, assignment, {"word_count": []}))]
        )[0]
        marks.append(time.perf_counter())
        empty = record_batch(bench.topology.aggregates[0], [])
        assert bench.ledger.commit(bench.topology, emitted, {"word_count": [empty]}).applied
        marks.append(time.perf_counter())
        bench.ledger.success("word_count", batch.txid)
        marks.append(time.perf_counter())
        times.append([1000 * (after - before) for before, after in pairwise(marks)])
    middle = [sorted(column)[len(column) // 2] for column in zip(*times, strict=True)]
    names = ("initialize", "attempt", "manifest", "commit", "success")
    with capsys.disabled():
        print(
            "\n  median ms:",
            ", ".join(f"{name} {ms:.1f}" for name, ms in zip(names, middle, strict=True)),
            f"= {sum(middle):.1f}",
        )


@pytest.mark.rule("R6")
def test_a_broken_chain_is_found_by_the_commit(bench: Bench) -> None:
    bench.topology.max_pending = 3
    first, second = bench.planned("1"), bench.emitted(words(dog=1), "2")
    bench.ledger.abort("word_count", first.txid, "why")
    with pytest.raises(BrokenChain):
        bench.commit(second, words(dog=1))
    assert bench.rows("SELECT * FROM state.word_count") == []
