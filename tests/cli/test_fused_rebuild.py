"""A rebuild whose batches are emitted by one job, while others go on: it comes to what a topology of its own counts (R23)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli_support import DAYS, rows
from click.testing import Result
from sqlalchemy import Connection, Engine, text
from without_spark import LikeTheDriver, WithoutSpark

from txbatch import settings
from txbatch.core.batch.transaction import Assignment
from txbatch.core.corrections.rebuild import Rebuild
from txbatch.core.errors import BadRecord
from txbatch.core.protocol import bulk
from txbatch.core.topology.topology import Topology
from txbatch.launch.job_file import load_job
from txbatch.postgres.corrections.rebuild import PostgresRebuilds
from txbatch.postgres.tables import batches
from txbatch.storage.staging import AttemptFolder
from txbatch.wiring import open_runner

WHY = ("--why", "the longest, too")
MORE = ', longest=Max("name")'


class Meanwhile(LikeTheDriver):
    """Notes what is emitted together and what alone; calls once what is in `during` while several are."""

    together: list[list[int]]
    alone: list[int]
    during: list[Callable[[], object]]

    def emit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        self.alone.append(assignment.attempt.txid)
        super().emit(folder, assignment)

    def emit_bulk(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        self.together.append([assignment.attempt.txid for _, assignment in attempts])
        while self.during:
            self.during.pop()()
        before = list(self.alone)
        super().emit_bulk(attempts)
        self.alone[:] = before


@contextmanager
def poisoned(txid: int, told: str) -> Iterator[None]:
    """Context manager. A batch has a record that no job counts."""
    emit = WithoutSpark.emit

    def fails(self: WithoutSpark, folder: AttemptFolder, assignment: Assignment) -> None:
        if assignment.attempt.txid == txid:
            raise BadRecord(told)
        emit(self, folder, assignment)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(WithoutSpark, "emit", fails)
        yield


class Days:
    """A job over days by the hour, of which five are committed, and the same with one more value."""

    def __init__(
        self, txbatch: Callable[..., Result], write_job: Callable[[str, str], str], root: Path, engine: Engine
    ):
        self.txbatch, self.write, self.root, self.engine = txbatch, write_job, root, engine
        self.job, self.now = self.of("days.py"), self.of("more.py", MORE)
        for day in range(1, 7):
            self.arrives(day, *(f"hour{hour}" for hour in range(day)))
        self.run(1, 6)

    def of(self, name: str, more: str = "", topology: str = "days") -> str:
        of = DAYS.format(root=str(self.root)).replace('"days"', f'"{topology}"')
        return self.write(name, of.replace("count=Count()", f"count=Count(){more}"))

    def arrives(self, day: int, *names: str) -> None:
        with (self.root / "a").open("a") as file:
            file.writelines(f"2026-01-0{day}T05:00:00+00:00,{name}\n" for name in names)

    def run(self, start: int, end: int, job: str = "") -> None:
        between = (f"2026-01-0{start}T00Z", f"2026-01-0{end}T00Z")
        rows(self.txbatch("run", job or self.job, "--interval", *between, "--cron", "0 0 * * *", "--json"))

    def restate(self, *txids: int) -> None:
        with open_runner(load_job(self.job), settings.resolve()) as runner:
            list(runner.restate(txids, "late"))

    def rebuild(self) -> Result:
        return self.txbatch("rebuild", self.now, *WHY)

    def report(self, state: str = "days") -> list[tuple[object, ...]]:
        columns = '"count", longest' if state == "fresh" or self.rebuilt else '"count"'
        with self.engine.connect() as connection:
            return [
                tuple(row) for row in connection.execute(text(f"SELECT name, {columns} FROM report.{state} ORDER BY 1"))
            ]

    @property
    def rebuilt(self) -> bool:
        with self.engine.connect() as connection:
            return connection.execute(
                text("SELECT count(*) > 0 FROM report.rebuilds WHERE status = 'swapped'")
            ).scalar_one()

    def check(self, end: int) -> None:
        """The states are what is counted from nothing, by the job as it is now."""
        self.run(1, end, self.of("fresh.py", MORE, "fresh"))
        assert self.rebuilt
        assert self.report() == self.report("fresh")


@pytest.fixture
def days(
    txbatch: Callable[..., Result],
    write_job: Callable[[str, str], str],
    engine: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Days:
    (tmp_path / "in").mkdir()
    monkeypatch.setattr("txbatch.wiring.Application", Meanwhile)
    for name in ("together", "alone", "during"):
        monkeypatch.setattr(Meanwhile, name, list[Any](), raising=False)
    found = Days(txbatch, write_job, tmp_path / "in", engine)
    Meanwhile.together.clear()
    return found


@pytest.mark.rule("R10", "R23")
@pytest.mark.parametrize("point", ["rebuild.before_commit", "rebuild.counted"])
def test_stopped_behind_the_first_it_emits_the_others_by_one_job(
    days: Days, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXBATCH_FAILPOINTS", f"{point}=raise")
    assert f"FailpointReached: {point}" in days.rebuild().output
    monkeypatch.delenv("TXBATCH_FAILPOINTS")
    assert days.rebuild().exit_code == 0
    first = [1, 2, 3, 4, 5]
    assert Meanwhile.together == [first, first if point == "rebuild.before_commit" else first[1:]]
    days.check(6)


@pytest.mark.rule("R17", "R22", "R23")
@pytest.mark.parametrize("counted", [0, 2])
def test_restates_a_batch_and_gc_meanwhile(days: Days, counted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """While several are emitted, or counted: what they replace is not counted, what they bring is."""

    def meanwhile() -> None:
        days.arrives(2, "late")
        days.arrives(4, "late", "hour0")
        days.restate(2, 4)
        days.run(6, 7)
        collected = days.txbatch("gc", "days", "--keep-txids", "3")
        assert "a rebuild counts what would be folded; call again when it is swapped or cancelled" in collected.output

    if counted:
        _after(counted, meanwhile, monkeypatch)
    else:
        Meanwhile.during.append(meanwhile)
    done = days.rebuild()
    assert done.exit_code == 0, done.output
    assert Meanwhile.alone == [8]  # the new day, by its own run
    days.check(7)


@pytest.mark.rule("R23")
@pytest.mark.parametrize("counted", [0, 2, 3])
def test_cancelled_meanwhile_it_leaves_no_trace(days: Days, counted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = days.report()

    def cancel() -> None:
        assert days.txbatch("rebuild", "days", "--cancel").exit_code == 0

    if counted:
        _after(counted, cancel, monkeypatch)
    else:
        Meanwhile.during.append(cancel)
    refused = days.rebuild()
    assert (refused.exit_code, "does not run any more" in refused.output) == (1, True), refused.output
    assert days.report() == before
    assert list((Path(settings.resolve().home) / "staging").rglob("*.parquet")) == []
    assert days.rebuild().exit_code == 0
    days.check(6)


@pytest.mark.rule("R23")
def test_a_job_that_changes_while_several_are_emitted_counts_none_of_them(days: Days) -> None:
    before, text_ = days.report(), Path(days.now).read_text()
    Meanwhile.during.append(lambda: Path(days.now).write_text(f"{text_}\n# mended\n"))
    refused = days.rebuild()
    assert (refused.exit_code, "the job has changed since: put it back" in refused.output) == (1, True), refused.output
    assert days.report() == before
    Path(days.now).write_text(text_)
    assert days.rebuild().exit_code == 0
    days.check(6)


@pytest.mark.rule("R23", "R24")
def test_a_poisoned_position_is_named_and_those_before_it_stay_counted(days: Days) -> None:
    before = days.report()
    with poisoned(3, "state 'days': no hour2 is expected; the record is {'name': 'hour2'}"):
        failed = days.rebuild()
    assert failed.exit_code == 1
    assert "rebuild 1 of days: position 3 cannot be counted by the job as it is now" in failed.output
    assert "the record is {'name': 'hour2'}" in failed.output
    assert days.report() == before
    assert days.rebuild().exit_code == 0
    assert Meanwhile.together == [[1, 2, 3, 4, 5], [3, 4, 5]]
    days.check(6)


@pytest.mark.rule("R23")
def test_the_next_train_is_emitted_while_one_is_counted(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "BATCHES_FIRST", 2)
    events, count = list[object](), PostgresRebuilds.count

    def counting(self: PostgresRebuilds, rebuild: Rebuild, topology: Topology, again: Assignment, *more: Any) -> bool:
        events.extend([*Meanwhile.together, again.attempt.txid])
        Meanwhile.together.clear()
        return count(self, rebuild, topology, again, *more)

    monkeypatch.setattr(PostgresRebuilds, "count", counting)
    assert days.rebuild().exit_code == 0
    assert events == [[1, 2], [3, 4, 5], 1, 2, 3, 4, 5]
    assert Meanwhile.alone == []
    days.check(6)


def test_of_versions_that_do_not_go_together_no_long_train_is_looked_up(
    days: Days, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each version has what was read of each partition: four hundred of them would be asked for again and again."""
    looked_up, versions = list[int](), batches.versions

    def noted(connection: Connection, topology: str, txids: Sequence[int]) -> Any:
        looked_up.extend(txids)
        return versions(connection, topology, txids)

    monkeypatch.setattr(batches, "versions", noted)
    monkeypatch.setattr(bulk, "go_together", lambda *_: False)
    assert days.rebuild().exit_code == 0
    assert Meanwhile.alone == [1, 2, 3, 4, 5]
    assert len(looked_up) <= 3 * 5, "a version itself, and two to see whether they go together"
    days.check(6)


@pytest.mark.rule("R23", "R24")
def test_of_a_train_emitted_beside_the_counting_a_poisoned_position_is_named(
    days: Days, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "BATCHES_FIRST", 2)
    with poisoned(4, "state 'days': no hour3 is expected"):
        failed = days.rebuild()
    assert failed.exit_code == 1
    assert "rebuild 1 of days: position 4 cannot be counted by the job as it is now" in failed.output
    assert days.rebuild().exit_code == 0
    assert Meanwhile.together == [[1, 2], [3, 4, 5], [4, 5]]
    days.check(6)


@pytest.mark.rule("R17", "R23")
def test_restates_batches_of_both_trains_while_the_first_is_counted(
    days: Days, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they replace is not counted, though emitted; what they bring is."""
    monkeypatch.setattr(bulk, "BATCHES_FIRST", 2)

    def meanwhile() -> None:
        days.arrives(2, "late")
        days.arrives(4, "late", "hour0")
        days.restate(2, 4)
        days.run(6, 7)

    _after(1, meanwhile, monkeypatch)
    done = days.rebuild()
    assert done.exit_code == 0, done.output
    days.check(7)


def _after(counted: int, call: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have something called once when a rebuild has counted so many."""
    count, done = PostgresRebuilds.count, []

    def counting(*given: object) -> bool:
        found = count(*given)  # type: ignore[arg-type]
        done.append(found)
        if len(done) == counted:
            call()
        return found

    monkeypatch.setattr(PostgresRebuilds, "count", counting)
