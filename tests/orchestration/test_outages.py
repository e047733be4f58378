"""A task whose ledger, or whose whole source, does not answer waits, and goes on by itself; without Airflow or Spark at work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException, TaskDeferred
from forks import told_with_airflow
from outages import Outage
from two_dags import TwoDags

from txbatch import __version__
from txbatch.core.errors import (
    DatabaseRefused,
    EmissionFailed,
    NotMigrated,
    OutcomeUnknown,
    PartitionUnreadable,
    RecordsGone,
    SourceAway,
    TerminalError,
    TxbatchError,
    Unavailable,
    error_of,
)
from txbatch.orchestration import result, trigger
from txbatch.orchestration.airflow import AIRFLOW_LEASE_SECONDS
from txbatch.orchestration.failing import outages
from txbatch.orchestration.trigger import AskAgainTrigger, EmissionTrigger, LedgerTrigger, TurnTrigger
from txbatch.postgres.database import reach
from txbatch.postgres.database.reach import away
from txbatch.spouts.tables import connection
from txbatch.spouts.tables.connection import no_connection
from txbatch.spouts.topics import client

LEASES = {"topology": "sales", "run": "airflow:sales:r", "least": 0.0}
LIMIT, SINCE, SOURCE = "ledger_timeout_minutes", "ledger_away_since", "source_timeout"
WHERE, REFUSED = 'connection to server at "db" (10.0.0.1), port 5432 failed: ', "Connection refused"


class Task:
    """A try of a task, with what it left behind."""

    def __init__(self, **params: Any) -> None:
        self.left = dict[str, str]()
        ti = SimpleNamespace(xcom_push=lambda key, value: self.left.update({key: value}), try_number=1)
        dag_run = SimpleNamespace(dag_id="sales", run_id="r")
        self.context: Any = {"ti": ti, "params": params, "dag_run": dag_run}
        self.deadlines = dict[str, str]()

    def run(self, error: Exception | None = None, event: Any = None) -> TaskDeferred | None:
        """Run it to its end, or to the wait by which it ends."""
        try:
            with outages.outages_waited_for("sales", self.context, event, self.deadlines):
                if error is not None:
                    raise error
        except TaskDeferred as deferred:
            return deferred
        return None


def ago(minutes: float) -> str:
    return (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()


@pytest.fixture
def no_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "ledger_away", lambda: WHERE + REFUSED)


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "ledger_away", lambda: None)


@pytest.mark.parametrize(
    "error", [Unavailable("x"), OutcomeUnknown("x"), EmissionFailed("x"), ValueError("x")], ids=lambda each: type(each)
)
def test_a_task_without_its_ledger_waits_and_says_so(
    error: Exception, no_ledger: None, caplog: pytest.LogCaptureFixture
) -> None:
    task = Task(ledger_timeout_minutes=30)
    deferred = task.run(error)
    assert deferred is not None
    assert isinstance(deferred.trigger, LedgerTrigger)
    _, stored = deferred.trigger.serialize()
    assert (stored.pop("seconds"), stored) == (pytest.approx(30 * 60, abs=5), LEASES), "whose leases it renews"
    assert (deferred.method_name, deferred.kwargs) == ("execute", {"deadlines": task.deadlines})
    assert deferred.timeout is not None
    assert timedelta(minutes=39) < deferred.timeout <= timedelta(minutes=40)
    note = task.left[result.XCOM_KEY]
    assert note.startswith("waits for the ledger since ")
    assert "goes on by itself" in note[:120]
    assert note.endswith(f"the ledger does not answer ({REFUSED})")
    assert caplog.messages == [f"sales: {note.replace(REFUSED, WHERE + REFUSED)}"]


@pytest.mark.parametrize("error", [RecordsGone("x"), AirflowSkipException("x"), AirflowFailException("x")])
def test_what_no_wait_helps_fails_at_once_also_without_a_ledger(error: Exception, no_ledger: None) -> None:
    task = Task()
    with pytest.raises(type(error)):
        task.run(error)
    assert task.left == {}


def test_an_error_beside_a_ledger_that_answers_is_left_to_airflows_retries(ledger: None) -> None:
    said = "north is away: it does not answer"
    for error in (Unavailable("x"), PartitionUnreadable(said), ValueError("x"), EmissionFailed(said)):
        with pytest.raises(type(error)):
            Task().run(error)


def test_a_source_is_waited_for_by_the_kind_of_its_error_and_not_by_words(ledger: None) -> None:
    for error in (SourceAway("no route to the shop"), SourceAway("x").retold("txid 7: x")):
        assert Task().run(error) is not None


def test_one_outage_has_one_deadline_and_the_next_one_its_own(no_ledger: None, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task()
    task.run(Unavailable("x"))
    first = dict(task.deadlines)
    assert timedelta(hours=5) < datetime.fromisoformat(first[LIMIT]) - datetime.now(UTC) <= timedelta(hours=6)
    task.run(Unavailable("x"), {"answers": False})
    assert task.deadlines == first
    task.deadlines[SINCE] = ago(12)
    monkeypatch.setattr(outages, "ledger_away", lambda: None)
    assert task.run(None, {"answers": True}) is None
    assert task.deadlines == {}
    assert task.left == dict.fromkeys((result.XCOM_KEY, result.WAITED_KEY), "waited 12 min for the ledger")


def test_a_ledger_that_the_triggerer_alone_sees_is_away_until_the_deadline(no_ledger: None) -> None:
    task = Task(ledger_timeout_minutes=30)
    task.run(Unavailable("x"))
    first = dict(task.deadlines)
    again = task.run(Unavailable("x"), {"answers": True})
    assert again is not None
    assert isinstance(again.trigger, LedgerTrigger)
    assert again.trigger.least == 60, "no loop of a few seconds"
    assert task.deadlines == first
    task.deadlines[LIMIT] = ago(0)
    with pytest.raises(AirflowFailException, match="waited 0:30:00"):
        task.run(Unavailable("x"), {"answers": True})


def test_an_outage_of_the_ledger_puts_off_all_other_deadlines(ledger: None) -> None:
    task = Task()
    task.deadlines = {SINCE: ago(90), LIMIT: ago(-60), "turn_timeout_minutes": ago(30), SOURCE: ago(60)}
    task.run()
    assert task.deadlines.keys() == {"turn_timeout_minutes", SOURCE}
    left = [datetime.fromisoformat(each) - datetime.now(UTC) for each in task.deadlines.values()]
    assert [round(each / timedelta(minutes=1)) for each in left] == [60, 30]


def test_a_task_that_has_worked_for_long_has_met_its_ledger(no_ledger: None, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task()
    task.deadlines = {SINCE: ago(400), LIMIT: ago(40)}
    with pytest.raises(AirflowFailException, match="waited 6:00:00"):
        task.run(Unavailable("x"))
    monkeypatch.setattr(outages, "datetime", working(30))
    assert task.run(Unavailable("x")) is not None
    assert left(task.deadlines[LIMIT]) > timedelta(hours=5)


def test_an_attempt_that_meets_an_absent_source_at_its_end_waits_no_longer_in_all(
    ledger: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It forgot the deadline after each ten minutes of work: the task waited for ever. Only the work itself is no wait."""
    gone, task = no_connection("shop", "connection refused"), Task()
    task.deadlines[SOURCE] = ago(1)
    with pytest.raises(AirflowFailException, match="waited 6:00:00"):
        task.run(gone)
    monkeypatch.setattr(outages, "datetime", working(30))
    assert task.run(gone) is not None
    assert timedelta(minutes=28) < left(task.deadlines[SOURCE]) < timedelta(minutes=30)
    outages.source_met(task.deadlines)
    assert task.run(gone) is not None
    assert left(task.deadlines[SOURCE]) > timedelta(hours=5), "a batch is committed since: another outage"


def left(deadline: str) -> timedelta:
    return datetime.fromisoformat(deadline) - datetime.now(UTC)


def working(minutes: float) -> Any:
    """A clock by which each task has worked for so long: every first look is before the work."""
    looks = count()

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) - timedelta(minutes=0 if next(looks) % 2 else minutes)

    return Clock


def test_a_wait_that_is_too_long_fails_with_a_note(no_ledger: None) -> None:
    task = Task(ledger_timeout_minutes=30)
    task.deadlines[LIMIT] = ago(0)
    told = f"waited 0:30:00: the ledger does not answer ({REFUSED}); clear this task once it does"
    with pytest.raises(AirflowFailException, match="sales: waited 0:30:00"):
        task.run(Unavailable("x"))
    assert task.left == {result.XCOM_KEY: f"failed: {told}"}


def test_a_task_without_its_whole_source_waits_longer_and_longer(ledger: None) -> None:
    """In the task that plans, and in words from Spark's driver, whose code leads to the class."""
    gone = no_connection("shop", "connection refused")
    said = error_of(f"{gone}", EmissionFailed)
    for error in (gone, said):
        task = Task(ask_again_seconds=20)
        deferred = task.run(error)
        assert deferred is not None
        assert deferred.trigger.serialize()[1] == {"seconds": 20}
        assert task.left[result.XCOM_KEY].startswith("waits for the source, and goes on by itself, until ")
        assert task.deadlines.keys() == {SOURCE}, "the ledger has a deadline of its own"
        for waited, seconds in ((32, 4 * 60), (4 * 60, AIRFLOW_LEASE_SECONDS / 3)):
            task.deadlines[SOURCE] = ago(waited - 6 * 60)
            later = task.run(error)
            assert later is not None
            assert isinstance(later.trigger, AskAgainTrigger)
            assert later.trigger.seconds == pytest.approx(seconds, abs=5)


def test_a_database_is_away_unless_no_wait_helps(postgres_url: str) -> None:
    nobody = postgres_url.replace("://txbatch@", "://nobody@")
    nowhere = postgres_url.replace("/test_", "/no_such_test_")
    port = "postgresql+psycopg2://txbatch@127.0.0.1:1/nothing"
    assert [away(url) for url in (postgres_url, nobody, nowhere)] == [None] * 3
    assert "Connection refused" in (away(port) or "")


REFUSALS = [
    'FATAL: pg_hba.conf rejects connection for host "10.0.0.9", user "x", database "y", no encryption',
    "server does not support SSL, but SSL was required",
    "SSL error: certificate verify failed",
    'FATAL: database "shop" is not currently accepting connections',
    "FATAL: no such database: shop",
]


@pytest.mark.parametrize("said", [*REFUSALS, 'root certificate file "/root.crt" does not exist'])
def test_a_connection_that_no_wait_helps_is_no_outage(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(engine: object) -> Any:
        raise Unavailable(f"the database refuses the session: {said}")

    monkeypatch.setattr(reach, "transaction", refuses)
    assert away("postgresql+psycopg2://txbatch@127.0.0.1:1/nothing") is None
    assert isinstance(no_connection("shop", said), TerminalError)


def test_a_database_that_goes_away_at_the_end_of_the_look_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its COMMIT has no answer; of a look there is no outcome to find out."""

    def cut(engine: object) -> Any:
        raise OutcomeUnknown("outcome unknown: the answer to COMMIT was lost")

    monkeypatch.setattr(reach, "transaction", cut)
    assert away("postgresql+psycopg2://txbatch@127.0.0.1:1/nothing") == "the connection was lost"


@pytest.mark.parametrize(
    ("state", "waits"),
    [
        (None, True),
        ("08006", True),
        ("53300", True),
        ("57P01", True),
        ("57014", False),
        ("40001", False),
        ("XX000", False),
    ],
)
def test_a_statement_is_waited_for_only_if_the_server_is_lost(state: str | None, waits: bool, ledger: None) -> None:
    assert _waits(connection.in_our_words("shop.sale", state, "told by the server")) is waits


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("_TRANSPORT", True),
        ("_ALL_BROKERS_DOWN", True),
        ("_TIMED_OUT", True),
        ("NOT_LEADER_FOR_PARTITION", True),
        ("_BAD_MSG", False),
        ("UNSUPPORTED_VERSION", False),
        ("_FAIL", False),
    ],
)
def test_brokers_are_waited_for_only_if_they_are_lost(name: str, waits: bool, ledger: None) -> None:
    assert _waits(client.in_our_words("source 'shop'", SimpleNamespace(name=lambda: name))) is waits


def _waits(error: TxbatchError) -> bool:
    """True for a wait, False for a try of Airflow's own."""
    assert isinstance(error, PartitionUnreadable)
    try:
        return Task().run(error) is not None
    except PartitionUnreadable:
        return False


PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from dag_tasks import TASKS, done, given
from outages import Outage
from without_spark import emit_without_spark
from txbatch import failpoints
from txbatch.orchestration import trigger
from txbatch.orchestration.airflow import open_steps
from txbatch.orchestration.operators import EmitBatchOperator

trigger.MARGIN_SECONDS = trigger.POLL_SECONDS = 0.05
words, days, source = given()
EmitBatchOperator.submit = lambda self, folder, assignment: emit_without_spark(self.job, folder, assignment)
outage = Outage(sys.argv[4], Path(sys.argv[5]))
EARLY = 4  # more than all of Airflow's tries
POINTS = ("initialize.before_lock", "emit.manifest_written", "commit.before_commit", "success.cleaned")

async def first(trigger):
    return await anext(trigger.run())

def through(run_id, *points):
    left, events, notes = list(points), [], []

    def reached(name):
        if left[:1] == [name]:
            left.pop(0)
            outage.begin()

    def resumed(deferred):
        notes.append(of_task[-1])
        early = len(events) % (EARLY + 1) < EARLY
        if early:
            deferred.trigger.seconds = 0.1
        else:
            outage.end()
        events.append(asyncio.run(first(deferred.trigger)).payload)
        return {"event": events[-1], **deferred.kwargs}

    of_task = []
    with failpoints.watch(reached):
        found = done(words, run_id, TASKS, of_task.append, resumed)
    return {**found, "events": events, "left": left, "notes": notes}

found = {"one": through("one", *POINTS), "two": through("two", "commit.committed")}
print(json.dumps(found))
"""


@pytest.fixture
def short() -> Iterator[Path]:
    with TemporaryDirectory(prefix="tx") as folder:
        yield Path(folder)


def test_the_ledger_goes_away_in_the_middle_of_each_task_and_nothing_is_red_and_nothing_counts_twice(
    tmp_path: Path, postgres_url: str, short: Path
) -> None:
    """For more comings back than Airflow makes tries; also between a commit and its answer."""
    dags = TwoDags.written(tmp_path, '"@daily"', "2024-01-01T10:00Z,a")
    outage = Outage(postgres_url, short / "pg")
    outage.end()
    given = (str(dags.folder / "dags" / f"{name}.py") for name in ("words", "days"))
    made = told_with_airflow(
        PROGRAM,
        *given,
        str(dags.source),
        postgres_url,
        str(outage.link),
        folder=tmp_path,
        TXBATCH_DATABASE_URL=outage.url,
        TXBATCH_HOME=str(tmp_path / "home"),
        AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL="0",
    )
    for name, outages_of in (("one", 4), ("two", 1)):
        assert (made[name]["told"], made[name]["left"]) == ([], [])
        each = [{"answers": answers, "txbatch": __version__} for answers in (False, False, False, False, True)]
        assert made[name]["events"] == each * outages_of
        assert all(note.startswith("waits for the ledger since ") for note in made[name]["notes"])
    assert made["one"]["note"] == "txid 1: 1 record, 1 key, 2 attempts"
    assert made["two"]["note"] == "txid 2: 1 record, 1 key, 1 attempt"
    assert made["one"]["txbatch_waited"].endswith(" for the ledger")
    assert made["one"]["extra"]["txid"] == 1
    assert made["two"]["extra"]["txid"] == 2


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (None, []),
        ({"answers": True, "txbatch": __version__}, []),
        ({"answers": True, "txbatch": "99.1"}, ["txbatch 99.1"]),
        ({"answers": True}, ["another txbatch"]),
    ],
)
def test_a_triggerer_of_another_version_is_told_in_one_line_and_the_task_goes_on(
    event: Any, told: list[str], ledger: None, caplog: pytest.LogCaptureFixture
) -> None:
    assert Task().run(None, event) is None
    after = f"this worker has txbatch {__version__}: install one version, and restart the triggerer"
    assert caplog.messages == [f"sales: the triggerer has {each}, {after}" for each in told]


@pytest.mark.parametrize(
    "made",
    [
        lambda more: AskAgainTrigger(1.0, **more),
        lambda more: LedgerTrigger(1.0, **more),
        lambda more: TurnTrigger("sales", 7, "run", None, 1.0, **more),
        lambda more: EmissionTrigger("sales", 7, "run", 7, 1.0, **more),
    ],
)
def test_a_trigger_takes_arguments_of_newer_workers(made: Any) -> None:
    assert made({"of_a_newer_version": 1}).serialize() == made({}).serialize()


@pytest.mark.parametrize("made", [TurnTrigger, EmissionTrigger])
@pytest.mark.parametrize("error", [Unavailable("x"), OutcomeUnknown("x")], ids=lambda each: type(each).__name__)
def test_a_trigger_whose_look_is_cut_off_looks_again(error: TxbatchError, made: type[TurnTrigger]) -> None:
    """Also at the COMMIT of the look: a trigger that failed would end the wait of the task, and use up a try."""

    def cut(*_: object) -> Any:
        raise error

    ledger: Any = SimpleNamespace(
        batch=cut, turn_of=cut, renew_waiting_lease=cut, engine=SimpleNamespace(dispose=lambda: None)
    )
    for own in (None, 7):
        assert made("sales", 7, "run", own, 60.0)._over(ledger) is False


@pytest.mark.parametrize("error", [NotMigrated("of a newer txbatch"), DatabaseRefused("no column")])
def test_a_trigger_that_cannot_look_lets_the_task_look(
    error: TxbatchError, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The triggerer's txbatch is older than the ledger: a trigger that failed would end the task with a traceback."""

    async def opened() -> Any:
        return None

    def refused(*_: object) -> bool:
        raise error

    async def fired() -> Any:
        return await anext(TurnTrigger("sales", 7, "run", None, 60.0).run())

    monkeypatch.setattr(trigger, "open_ledger", opened)
    monkeypatch.setattr(trigger, "first_seconds", lambda: 0.0)
    monkeypatch.setattr(trigger, "BLIND_SECONDS", 0.0)
    monkeypatch.setattr(TurnTrigger, "_over", refused)
    assert asyncio.run(fired()).payload == {"txid": 7, "txbatch": __version__}
    assert caplog.messages == [f"sales: {error}"]
