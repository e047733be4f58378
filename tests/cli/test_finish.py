"""A run on its way to its commit: what is in its way, dead or alive, and a batch that no longer continues what is committed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import Result
from sqlalchemy import Engine, text

from txbatch import settings
from txbatch.core.batch.transaction import Assignment, Batch, BatchStatus, Run
from txbatch.core.errors import Incomplete, NotItsTurn, PartitionUnreadable
from txbatch.core.protocol.coordinator import NothingNew
from txbatch.failpoints import FailpointReached
from txbatch.launch.job_file import load_job
from txbatch.run.advance import Advance, Finished
from txbatch.run.runner import Runner
from txbatch.storage.staging import AttemptFolder
from txbatch.wiring import open_runner

WriteJob = Callable[[str, str], str]
WORDS = """
topology = Topology("words", max_pending=3)
words = FixedBatchSpout("word string", 1, "one", "two", "three", "four")
topology.new_stream("in", words).group_by("word").persistent_aggregate(OpaqueState("words"), count=Count())
"""
MINE = Run("cli:mine")


@pytest.fixture
def runner(txbatch: Callable[..., Result], write_job: WriteJob) -> Runner:
    """Of a topology three batches of which may be in flight; no Spark is started."""
    return open_runner(load_job(write_job("words.py", WORDS)), settings.resolve())


def planned(runner: Runner, run: Run) -> Batch:
    found = runner.steps.initialize_transaction(run)
    assert isinstance(found, Batch)
    return found


def end_leases(engine: Engine, txid: int) -> None:
    with engine.begin() as connection:
        ended = "UPDATE txbatch.batch SET lease_until = clock_timestamp() - interval '1 s' WHERE txid = :txid"
        connection.execute(text(ended), {"txid": txid})


def attempts(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT attempt FROM report.attempts ORDER BY txid, attempt_id")).scalars())


def counts(engine: Engine) -> dict[str, int]:
    with engine.connect() as connection:
        return {row[0]: row[1] for row in connection.execute(text('SELECT word, "count" FROM report.words'))}


@pytest.mark.rule("R6")
@pytest.mark.parametrize("emitted", [False, True])
def test_what_a_dead_run_left_below_is_finished_first(runner: Runner, engine: Engine, emitted: bool) -> None:
    dead = planned(runner, Run("cli:dead"))
    own = planned(runner, MINE)
    if emitted:
        runner.steps.emit_batch(dead, Run("cli:dead"), runner.submit)
    end_leases(engine, dead.txid)
    found = Advance(runner.steps, MINE, runner.submit).to_commit()
    assert isinstance(found, Finished)
    assert (found.batch.txid, found.applied, found.adopted) == (own.txid, True, (dead.txid,))
    assert runner.steps.ledger.batch("words", dead.txid).succeeded
    assert attempts(engine) == ["1:1", "2:1"]
    assert counts(engine) == {"one": 1, "two": 1}
    again = Advance(runner.steps, MINE, runner.submit).to_commit()
    assert isinstance(again, Finished)
    assert (again.batch.txid, again.applied, again.adopted) == (own.txid, False, ())


@pytest.mark.rule("R2", "R6")
def test_an_heir_counts_its_own_batch_too(runner: Runner, engine: Engine) -> None:
    """As many runs as records count them all, also when one of them died."""
    dead = planned(runner, Run("airflow:words:dead"))
    end_leases(engine, dead.txid)
    assert [batch.txid for batch in runner.run("second")] == [1, 2]
    assert [batch.txid for run in ("third", "fourth", "second") for batch in runner.run(run)] == [3, 4, 2]
    assert counts(engine) == {"one": 1, "two": 1, "three": 1, "four": 1}
    with engine.connect() as connection:
        assert not connection.execute(text("SELECT FROM txbatch.batch WHERE succeeded_at IS NULL")).all()


@pytest.mark.rule("R6", "R8")
def test_an_heir_for_whom_nothing_is_left(runner: Runner, engine: Engine) -> None:
    for number in range(3):
        list(runner.run(f"{number}"))
    dead = planned(runner, Run("airflow:words:dead"))
    end_leases(engine, dead.txid)
    heir = Run("airflow:words:heir")
    found = Advance(runner.steps, heir, runner.submit).to_commit()
    assert isinstance(found, Finished)
    assert (found.batch.txid, found.applied, found.adopted) == (4, True, ())
    assert runner.steps.batch_of(heir).txid == 4
    assert runner.steps.success(found.batch)
    assert isinstance(Advance(runner.steps, heir, runner.submit).to_commit(), NothingNew)


@pytest.mark.rule("R6", "R8")
@pytest.mark.timeout(60)
def test_killed_between_the_commit_and_the_success_of_what_it_adopted(
    runner: Runner, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call brings that batch to its success, and then the run's own; it comes to an end."""
    dead, own = planned(runner, Run("airflow:words:dead")), planned(runner, MINE)
    end_leases(engine, dead.txid)
    with monkeypatch.context() as patch:
        patch.setenv("TXBATCH_FAILPOINTS", "commit.committed=raise")
        with pytest.raises(FailpointReached):
            Advance(runner.steps, MINE, runner.submit).to_commit()
    assert [batch.txid for batch in runner.run()] == [dead.txid, own.txid, 3]
    assert runner.steps.ledger.batch("words", dead.txid).succeeded
    assert counts(engine) == {"one": 1, "two": 1, "three": 1}


@pytest.mark.rule("R5", "R6")
@pytest.mark.parametrize("lower", [False, True], ids=["its own", "one that it finishes first"])
def test_a_batch_that_another_run_takes_over_while_it_is_emitted(runner: Runner, engine: Engine, lower: bool) -> None:
    """As where the server ended the sessions by which others know that it lives: it looks again, and finds its own committed."""
    other, taken = Run("cli:other"), list[int]()
    if lower:
        planned(runner, Run("cli:dead"))
    own = planned(runner, MINE)
    if lower:
        end_leases(engine, 1)

    def submit(folder: AttemptFolder, assignment: Assignment) -> None:
        runner.submit(folder, assignment)
        if assignment.attempt.txid == 1 and not taken:
            taken.append(1)
            end_leases(engine, 1)
            Advance(runner.steps, other, runner.submit).to_commit()

    found = Advance(runner.steps, MINE, submit).to_commit()
    assert isinstance(found, Finished)
    assert runner.steps.ledger.batch("words", 1).attempt.attempt_id == 2
    assert found.batch.txid == own.txid == 1 + lower
    assert len(list(runner.run("other"))) == 1
    assert counts(engine) == {"one": 1, "two": 1, **({"three": 1} if lower else {})}


@pytest.mark.rule("R6")
def test_an_heir_that_fails_goes_on_where_it_was(runner: Runner, engine: Engine) -> None:
    dead = planned(runner, Run("cli:dead"))
    own = planned(runner, MINE)
    end_leases(engine, dead.txid)

    def submit(folder: AttemptFolder, assignment: Assignment) -> None:
        if assignment.attempt.txid == dead.txid:
            raise PartitionUnreadable("away")
        runner.submit(folder, assignment)

    with pytest.raises(PartitionUnreadable):
        Advance(runner.steps, MINE, submit).to_commit()
    found = Advance(runner.steps, MINE, runner.submit).to_commit()
    assert isinstance(found, Finished)
    assert (found.batch.txid, found.adopted) == (own.txid, (dead.txid,))
    assert attempts(engine) == ["1:1", "1:2", "2:1"]
    assert counts(engine) == {"one": 1, "two": 1}


@pytest.mark.rule("R6")
def test_the_living_are_waited_for(runner: Runner) -> None:
    planned(runner, Run("airflow:words:live"))
    own = planned(runner, MINE)
    with pytest.raises(NotItsTurn, match="txid 1 of airflow:words:live is in flight; try again when it is committed"):
        list(runner.run("mine"))
    assert runner.steps.ledger.batch("words", own.txid).status is BatchStatus.EMITTED


@pytest.mark.rule("R6")
def test_a_batch_that_no_longer_continues_is_planned_anew_by_its_run(runner: Runner, engine: Engine) -> None:
    dead = planned(runner, Run("cli:dead"))
    own = planned(runner, MINE)
    runner.steps.emit_batch(own, MINE, runner.submit)
    runner.steps.ledger.abort("words", dead.txid, "wrong")
    found = Advance(runner.steps, MINE, runner.submit).to_commit()
    assert isinstance(found, Finished)
    assert (found.batch.txid, found.applied, found.batch.metadata) == (3, True, dead.metadata)
    aborted = runner.steps.ledger.batch("words", own.txid)
    assert aborted.status is BatchStatus.ABORTED
    assert counts(engine) == {"one": 1}


@pytest.mark.rule("R5", "R6")
def test_a_batch_that_an_heir_took_over_meanwhile_is_waited_for(runner: Runner, engine: Engine) -> None:
    own = planned(runner, MINE)
    runner.steps.emit_batch(own, MINE, runner.submit)
    end_leases(engine, own.txid)
    runner.steps.ledger.start_attempt(own, Run("airflow:words:heir"), runner.job.code)
    with pytest.raises(NotItsTurn, match="txid 1 of airflow:words:heir is in flight"):
        list(runner.run("mine"))


@pytest.mark.rule("R7")
@pytest.mark.parametrize("whose", ["mine", "dead"])
def test_what_was_staged_and_is_lost_is_emitted_again(runner: Runner, engine: Engine, whose: str) -> None:
    batch = planned(runner, Run(f"cli:{whose}"))
    runner.steps.emit_batch(batch, Run(f"cli:{whose}"), runner.submit)
    runner.steps.staging.transaction("words", batch.txid).remove()
    end_leases(engine, batch.txid)
    planned(runner, MINE)
    found = Advance(runner.steps, MINE, runner.submit).to_commit()
    assert isinstance(found, Finished)
    assert attempts(engine)[:2] == ["1:1", "1:2"]
    assert counts(engine)["one"] == 1


@pytest.mark.rule("R7")
def test_staging_that_loses_everything_fails_the_run(runner: Runner) -> None:
    def submit(folder: AttemptFolder, assignment: Assignment) -> None:
        runner.submit(folder, assignment)
        for name in folder.filesystem.find(folder.path("partials")):
            folder.filesystem.rm(name)

    with pytest.raises(Incomplete, match="is not the file that the manifest describes; emit again"):
        Advance(runner.steps, MINE, submit).to_commit()
