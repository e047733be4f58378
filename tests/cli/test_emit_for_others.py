"""One run that emits for others in its application: what it takes on, and what it leaves to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cli_support import DAYS
from click.testing import Result
from sqlalchemy import Engine, text
from without_spark import WithoutSpark

from txbatch import settings
from txbatch.core.batch.transaction import Assignment, Batch, BatchStatus, Interval, Run
from txbatch.core.errors import TransientError
from txbatch.core.protocol.decisions import Wait
from txbatch.launch.job_file import load_job
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.run_locks import PostgresRunLocks
from txbatch.run import shared_emission
from txbatch.run.shared_emission import EMIT_FOR_ALL, Emit, Emitted, WaitForOthers, decide
from txbatch.run.steps import Steps
from txbatch.storage.staging import AttemptFolder
from txbatch.wiring import open_steps

WORDS = """
topology = Topology("words", max_pending=4)
words = topology.new_stream("in", FixedBatchSpout("word string", 1, *"abcdef"))
words.group_by("word").persistent_aggregate(OpaqueState("words"), count=Count())
"""
LEADER = Run("airflow:words:leader")


class Spark(WithoutSpark):
    """Fails at some txids, and may be killed at one."""

    def __init__(self, steps: Steps, failing: tuple[int, ...] = (), killed_at: int = 0) -> None:
        super().__init__(steps.job)
        self.failing, self.killed_at, self.emitted = failing, killed_at, []

    def emit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        """Run the job on an attempt's folder."""
        txid = assignment.attempt.txid
        self.emitted.append(txid)
        self.killed = txid == self.killed_at
        if self.killed or txid in self.failing:
            raise TransientError(f"{txid} failed")
        super().emit(folder, assignment)


@pytest.fixture
def steps(txbatch: Callable[..., Result], write_job: Callable[[str, str], str]) -> Steps:
    return open_steps(load_job(write_job("words.py", WORDS)), settings.resolve())


@pytest.fixture
def four(steps: Steps) -> list[Batch]:
    """The leader's batch, and three others."""
    return [planned(steps, run) for run in (LEADER, *(Run(f"airflow:words:{n}") for n in (2, 3, 4)))]


def planned(steps: Steps, run: Run) -> Batch:
    found = steps.initialize_transaction(run)
    assert isinstance(found, Batch)
    return found


def statuses(steps: Steps) -> list[BatchStatus]:
    return [steps.ledger.batch("words", txid).status for txid in (1, 2, 3, 4)]


@pytest.mark.rule("R5")
def test_each_is_an_attempt_of_its_own_run(steps: Steps, four: list[Batch], engine: Engine) -> None:
    shared_emission.emit_for_others(steps, LEADER, spark := Spark(steps))
    assert spark.emitted == [2, 3, 4]
    assert statuses(steps) == ["planned", "emitted", "emitted", "emitted"]
    with engine.connect() as connection:
        attempts = connection.execute(text("SELECT attempt, run FROM report.attempts ORDER BY txid")).all()
    assert [tuple(row) for row in attempts] == [(f"{n}:1", f"airflow:words:{n}") for n in (2, 3, 4)]


class OneJob(Spark):
    """Emits several batches by one job, too."""

    def emit_bulk(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        """Note which they are."""
        self.together = [assignment.attempt.txid for _, assignment in attempts]
        super().emit_bulk(attempts)


@pytest.fixture
def four_days(txbatch: Callable[..., Result], write_job: Callable[[str, str], str], tmp_path: Path) -> Steps:
    """Each is planned by a run of its own."""
    (root := tmp_path / "in").mkdir()
    (root / "hours").write_text("\n".join(f"2026-01-0{day}T09:00+00:00,nine" for day in (1, 2, 3, 4)))
    job = DAYS.format(root=str(root)).replace('Topology("days"', 'Topology("days", max_pending=4')
    steps = open_steps(load_job(write_job("days.py", job)), settings.resolve())
    for day in (1, 2, 3, 4):
        planned(
            steps,
            Run(f"airflow:days:{day}", interval=Interval(*(datetime(2026, 1, n, tzinfo=UTC) for n in (day, day + 1)))),
        )
    return steps


def of_days(steps: Steps) -> list[str]:
    return [steps.ledger.batch("days", txid).status for txid in (1, 2, 3, 4)]


def test_those_that_go_together_are_emitted_by_one_job(four_days: Steps) -> None:
    spark = OneJob(four_days, failing=(3,))
    shared_emission.emit_for_others(four_days, Run("airflow:days:1"), spark)
    assert spark.together == [2, 3, 4]
    assert of_days(four_days) == ["planned", "emitted", "planned", "emitted"]
    own = four_days.emit_batch(four_days.ledger.batch("days", 3), Run("airflow:days:3"), Spark(four_days).emit)
    assert str(own.attempt) == "3:2"


@pytest.mark.rule("R5")
@pytest.mark.parametrize("first_try", [True, False])
def test_its_own_batch_is_emitted_by_the_same_job(four_days: Steps, first_try: bool) -> None:
    """Not by one of its own before: the source is read once."""
    own, spark = four_days.ledger.batch("days", 2), OneJob(four_days)
    found = shared_emission.emit(four_days, own, Run("airflow:days:2"), lambda: nullcontext(spark), first_try=first_try)
    assert (spark.together, sorted(spark.emitted)) == ([2, 1, 3, 4], [1, 2, 3, 4])
    assert isinstance(found, Emitted)
    assert (str(found.batch.attempt), of_days(four_days)) == ("2:1", ["emitted"] * 4)


def test_its_own_batch_that_fails_there_fails_by_itself(four_days: Steps) -> None:
    """The others are emitted, and it raises what it failed with."""
    own, spark = four_days.ledger.batch("days", 1), OneJob(four_days, failing=(1,))
    with pytest.raises(TransientError, match="1 failed"):
        shared_emission.emit(four_days, own, Run("airflow:days:1"), lambda: nullcontext(spark), first_try=True)
    assert of_days(four_days) == ["planned", "emitted", "emitted", "emitted"]


@pytest.mark.rule("R6")
def test_its_own_batch_that_is_another_runs_by_now_is_waited_for(four_days: Steps) -> None:
    own, spark = four_days.ledger.batch("days", 1), OneJob(four_days)
    found = shared_emission.emit(four_days, own, Run("airflow:days:9"), lambda: nullcontext(spark), first_try=True)
    assert isinstance(found, Wait)
    assert 1 not in spark.emitted


def test_what_was_tried_and_what_nobody_looks_after_is_left(steps: Steps, four: list[Batch], engine: Engine) -> None:
    with pytest.raises(TransientError):
        steps.emit_batch(four[1], Run("airflow:words:2"), Spark(steps, failing=(2,)).emit)
    with engine.begin() as connection:
        connection.execute(text("UPDATE txbatch.batch SET lease_until = now() - interval '1 s' WHERE txid = 3"))
    shared_emission.emit_for_others(steps, LEADER, spark := Spark(steps))
    assert spark.emitted == [4]


def test_what_fails_is_left_to_its_own_run(steps: Steps, four: list[Batch]) -> None:
    shared_emission.emit_for_others(steps, LEADER, spark := Spark(steps, failing=(2, 3)))
    assert spark.emitted == [2, 3, 4]
    assert statuses(steps) == ["planned", "planned", "planned", "emitted"]
    own = steps.emit_batch(four[1], Run("airflow:words:2"), Spark(steps).emit)
    assert str(own.attempt) == "2:2"


@pytest.mark.rule("R5")
def test_a_first_try_does_not_fence_off_what_is_emitted_for_it_just_now(steps: Steps, four: list[Batch]) -> None:
    leaves: dict[bool, bool] = {}

    class Slow(Spark):
        def emit(self, folder: AttemptFolder, assignment: Assignment) -> None:
            """Meanwhile the run's own task begins."""
            batch = steps.ledger.batch("words", assignment.attempt.txid)
            for first_try in (True, False):
                decision = decide(batch, Run("airflow:words:2"), alone=False, first_try=first_try)
                leaves[first_try] = decision == WaitForOthers(batch)
            super().emit(folder, assignment)

    own = Run("airflow:words:2")
    assert decide(four[1], own, alone=False, first_try=False) == WaitForOthers(four[1]), "nobody has tried it"
    assert decide(four[2], own, alone=False, first_try=True) == Emit(four[2], for_others=False), "it is another run's"
    assert decide(four[1], own, alone=True, first_try=True) == Emit(four[1], for_others=True), "nobody else is there"
    steps.emit_batch(four[1], own, Slow(steps).emit)
    assert leaves == {True: True, False: False}


def test_whoever_is_killed_starts_no_other(steps: Steps, four: list[Batch]) -> None:
    spark = Spark(steps, killed_at=3)
    with pytest.raises(TransientError, match="3 failed"):
        shared_emission.emit_for_others(steps, LEADER, spark)
    assert spark.emitted == [2, 3]


@pytest.fixture
def other_process(postgres_url: str) -> Iterator[PostgresRunLocks]:
    engine = connect(postgres_url)
    yield PostgresRunLocks(engine)
    engine.dispose()


@pytest.mark.rule("R6")
def test_one_process_emits_for_all(steps: Steps, other_process: PostgresRunLocks) -> None:
    """Until it is done, or gone: its session ends with it."""
    assert not shared_emission.somebody_emits(other_process, "words")
    with steps.locks.hold("words", EMIT_FOR_ALL) as first:
        assert first
        assert shared_emission.somebody_emits(other_process, "words")
        assert not shared_emission.somebody_emits(other_process, "other")
        with (
            other_process.hold("words", EMIT_FOR_ALL) as second,
            other_process.hold("other", EMIT_FOR_ALL) as third,
        ):
            assert (second, third) == (False, True)
    assert not shared_emission.somebody_emits(other_process, "words")
    with ExitStack() as gone:
        assert gone.enter_context(steps.locks.hold("words", EMIT_FOR_ALL))
        with other_process.engine.begin() as connection:
            ended = "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
            connection.execute(text(ended))
        with other_process.hold("words", EMIT_FOR_ALL) as heir:
            assert heir
