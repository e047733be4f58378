"""Late records of counted intervals: told by the run, status and verify, and with `lookback` counted by the run itself (R17)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cli_support import rows
from click.testing import Result
from late_days import job as job_text
from sqlalchemy import Engine, text
from without_spark import LikeTheDriver, WithoutSpark

from txbatch import settings
from txbatch.core.batch.staging import AttemptFolder
from txbatch.core.batch.transaction import Assignment
from txbatch.core.errors import BadRecord, TransientError
from txbatch.launch.job_file import load_job
from txbatch.wiring import open_runner

pytestmark = pytest.mark.rule("R17", "R24")
Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]


def day(first: int, last: int | None = None) -> list[str]:
    return ["--interval", f"2024-01-{first:02}T00:00Z", f"2024-01-{(last or first) + 1:02}T00:00Z"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.csv").write_text("2024-01-01T10:00Z,a\n2024-01-01T11:00Z,b\n")
    return folder


@pytest.fixture
def days(txbatch: Txbatch, write_job: WriteJob, root: Path) -> Callable[..., str]:
    """A job of which the first day is committed."""

    def made(lookback: str | None = "3 days", **changes: Any) -> str:
        path = write_job("days.py", job_text(root, lookback, **changes))
        ran(txbatch("run", path, *day(1)))
        return path

    return made


def ran(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def counts(engine: Engine) -> dict[str, tuple[int, int]]:
    with engine.connect() as connection:
        found = connection.execute(text("SELECT name, count, txid FROM report.days"))
        return {name: (count, txid) for name, count, txid in found}


def restates(engine: Engine) -> list[tuple[Any, ...]]:
    """The committed restates: txid, position, reason."""
    asked = (
        "SELECT txid, position, reason FROM txbatch.batch WHERE kind = 'restate' AND status = 'committed' ORDER BY txid"
    )
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(asked))]


def comes(root: Path, name: str, *lines: str) -> None:
    with (root / name).open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def late_for_first(days: Callable[..., str], root: Path, *given: Any, **changes: Any) -> str:
    """A job of which the first day is committed, and has a late record in a new file."""
    job = days(*given, **changes)
    comes(root, "x.csv", "2024-01-01T10:00Z,a")
    return job


def test_without_lookback_late_records_are_told_until_a_restate_counts_them(
    txbatch: Txbatch, days: Callable[..., str], root: Path, engine: Engine
) -> None:
    job = days(None)
    comes(root, "2.csv", "2024-01-02T10:00Z,a")
    assert "late" not in ran(txbatch("run", job, *day(2)))
    assert "late" not in ran(txbatch("status"))
    comes(root, "x.csv", *["2024-01-01T10:00Z,a"] * 12)
    told = 'days: late for txid 1: 12 records in x.csv; `txbatch restate days 1 --why "..."` counts them'
    assert told in ran(txbatch("run", job, *day(3)))
    assert told in ran(txbatch("status"))
    (row,) = json.loads(txbatch("status", "days", "--json").stdout)
    (late,) = row["late"]
    assert (late["position"], late["records"], late["files"], late["found_by"]) == (1, 12, {"x.csv": 12}, 3)
    assert "late" not in ran(txbatch("run", job, *day(4)))
    assert told in ran(txbatch("status")), "the ledger keeps what a batch met"
    verified = txbatch("verify", job)
    assert verified.exit_code == 1
    assert "LATE" in verified.output
    assert (restates(engine), counts(engine)["a"]) == ([], (2, 2))
    ran(txbatch("restate", job, "1", "--why", "late"))
    assert "late for" not in ran(txbatch("status"))
    ran(txbatch("verify", job))
    assert counts(engine)["a"][0] == 14


def test_a_run_counts_what_came_late_within_its_lookback_once(
    txbatch: Txbatch, days: Callable[..., str], root: Path, engine: Engine
) -> None:
    job = days()
    comes(root, "x.csv", "2024-01-02T09:00Z,b", *["2024-01-01T10:00Z,a"] * 12)
    (own, again) = rows(txbatch("run", job, *day(2), "--run-id", "mine", "--json"))
    assert [(row["txid"], row["kind"], row["position"], row["records"]) for row in (own, again)] == [
        (2, "ordinary", 2, 1),
        (3, "restate", 1, 14),
    ]
    assert restates(engine) == [(3, 1, "lookback: 12 records in x.csv")]
    assert counts(engine) == {"a": (13, 3), "b": (2, 3)}
    for called in ([*day(2), "--run-id", "mine"], day(2), day(3)):
        ran(txbatch("run", job, *called))
    assert len(restates(engine)) == 1, "retried, and by later runs"
    assert "late for" not in ran(txbatch("status"))
    ran(txbatch("verify", job))


def test_a_grown_file_is_looked_at_from_where_it_had_ended(
    txbatch: Txbatch, days: Callable[..., str], root: Path, engine: Engine
) -> None:
    job = days()
    comes(root, "1.csv", "2024-01-01T12:00Z,c", "2024-01-02T12:00Z,c")
    ran(txbatch("run", job, *day(2)))
    assert restates(engine) == [(3, 1, "lookback: 1 record in 1.csv")]
    comes(root, "1.csv", "2024-01-02T13:00Z,c", "2024-01-02T14:00Z,d")
    ran(txbatch("run", job, *day(3)))
    assert restates(engine)[1:] == [(5, 2, "lookback: 2 records in 1.csv")]
    assert counts(engine) == {"a": (1, 3), "b": (1, 3), "c": (3, 5), "d": (1, 5)}


def test_a_file_without_late_records_restates_nothing(
    txbatch: Txbatch, days: Callable[..., str], root: Path, engine: Engine
) -> None:
    job = days()
    comes(root, "2.csv", "2024-01-02T10:00Z,a", "2024-01-09T10:00Z,a")
    os.utime(root / "1.csv")
    ran(txbatch("run", job, *day(2)))
    comes(root, "3.csv")
    ran(txbatch("run", job, *day(3)))
    assert restates(engine) == []


def test_what_is_further_back_is_told(txbatch: Txbatch, days: Callable[..., str], root: Path, engine: Engine) -> None:
    job = days("2 days")
    ran(txbatch("run", job, *day(2, 3), "--cron", "0 0 * * *"))
    comes(root, "x.csv", "2024-01-01T10:00Z,a", "2024-01-02T10:00Z,a", "2024-01-03T10:00Z,a", "2024-01-04T10:00Z,a")
    said = ran(txbatch("run", job, *day(4)))
    assert restates(engine) == [(5, 2, "lookback: 1 record in x.csv"), (6, 3, "lookback: 1 record in x.csv")]
    assert "late for txid 1: 1 record in x.csv; `txbatch restate days 1" in said
    assert "late for txid 1" in ran(txbatch("status"))


def test_a_catch_up_looks_back_once_at_its_end(
    txbatch: Txbatch, days: Callable[..., str], root: Path, engine: Engine
) -> None:
    job = days()
    comes(root, "2.csv", *(f"2024-01-{number:02}T10:00Z,z" for number in range(1, 9)))
    done = rows(txbatch("run", job, *day(2, 8), "--cron", "0 0 * * *", "--json"))
    assert [row["txid"] for row in done] == [*range(2, 10)]
    assert restates(engine) == [(9, 1, "lookback: 1 record in 2.csv")]
    assert counts(engine)["z"] == (8, 9)
    ran(txbatch("run", job, *day(2, 9), "--cron", "0 0 * * *"))
    assert len(restates(engine)) == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda file: file.unlink(), "1.csv is gone since"),
        (lambda file: file.write_text("2024-01-01T10:00Z,a\n"), "1.csv is shorter since"),
        (lambda file: file.write_text("2024-01-01T10:00Z,x\n2024-01-01T11:00Z,y\n"), "1.csv was replaced since"),
        (lambda file: file.write_text("2024-01-01T10:00Z,x\n" * 9), "1.csv was replaced since"),
    ],
)
def test_a_file_that_is_gone_or_was_replaced_is_told_and_counts_nothing_again(
    txbatch: Txbatch, days: Callable[..., str], root: Path, engine: Engine, change: Callable[[Path], Any], told: str
) -> None:
    job = days()
    change(root / "1.csv")
    comes(root, "x.csv", "2024-01-01T10:00Z,a")
    (late,) = [each for each in txbatch("run", job, *day(2)).stderr.splitlines() if "late for" in each]
    assert f"late for txid 1: 1 record in x.csv; {told}" in late
    assert late in txbatch("status").stdout.splitlines(), "one text for both"
    assert (restates(engine), counts(engine)) == ([], {"a": (1, 1), "b": (1, 1)})
    ran(txbatch("run", job, *day(3)))
    assert restates(engine) == []


def test_where_retention_took_an_old_file_late_records_are_told_until_a_person_counts_without_it(
    txbatch: Txbatch, days: Callable[..., str], root: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each plan names each file: told by runs, status and verify, and never counted again by itself."""
    (root / "0.csv").write_text("2023-12-31T10:00Z,z\n")
    before = datetime(2023, 12, 31, 11, tzinfo=UTC).timestamp()
    os.utime(root / "0.csv", (before, before))
    job = days()
    (root / "0.csv").unlink()
    comes(root, "x.csv", "2024-01-01T10:00Z,a")
    told, again = "late for txid 1: 1 record in x.csv; ", '`txbatch restate days 1 --why "..." --accept-missing` counts'
    for number in (2, 3):
        assert f"{told}0.csv is gone since; {again}" in ran(txbatch("run", job, *day(number)))
    assert f"{told}0.csv is gone since; {again}" in ran(txbatch("status"))
    with monkeypatch.context() as patch:
        patch.setattr("txbatch.wiring.Application", LikeTheDriver)
        verified = txbatch("verify", job, "--json")
    found = json.loads(verified.stdout)[0]
    assert (verified.exit_code, found["outcome"]) == (1, "UNVERIFIABLE")
    assert "came late and are not counted" in found["reason"]
    assert "0.csv" in str(found["changed"])
    assert (restates(engine), counts(engine)) == ([], {"a": (1, 1), "b": (1, 1)})
    refused = txbatch("restate", job, "1", "--why", "late")
    assert (refused.exit_code, "--accept-missing" in refused.output) == (1, True)
    ran(txbatch("restate", job, "1", "--why", "without 0.csv", "--accept-missing"))
    assert counts(engine)["a"][0] == 2
    assert "late for" not in ran(txbatch("status"))
    comes(root, "x.csv", "2024-01-01T11:00Z,a")
    ran(txbatch("run", job, *day(4)))
    assert [position for _, position, _ in restates(engine)] == [1, 1], "its plan is without the file"
    assert counts(engine)["a"][0] == 3


def test_what_was_moved_to_another_file_is_gone_from_its_own(
    txbatch: Txbatch, days: Callable[..., str], root: Path, engine: Engine
) -> None:
    job = days()
    (root / "1.csv").rename(root / "one.csv")
    assert "1.csv is gone since" in ran(txbatch("run", job, *day(2)))
    assert restates(engine) == []


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ('TransactionalState("days", contributions=False)', "keeps no contributions"),
        ('TransactionalState("days", database="warehouse", contributions=False)', "is kept apart"),
    ],
)
def test_a_state_that_cannot_be_counted_again_is_told_and_fails_nothing(
    txbatch: Txbatch,
    days: Callable[..., str],
    root: Path,
    engine: Engine,
    databases: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    told: str,
) -> None:
    monkeypatch.setenv("TXBATCH_DATABASE_URL_WAREHOUSE", databases("warehouse"))
    job = late_for_first(days, root, state=state)
    said = ran(txbatch("run", job, *day(2)))
    assert "late for txid 1: 1 record in x.csv; " in said
    assert told in said
    assert restates(engine) == []


def test_what_is_folded_is_told_and_fails_nothing(
    txbatch: Txbatch, days: Callable[..., str], root: Path, engine: Engine
) -> None:
    """The lookback reaches beyond the horizon."""
    job = days("30 days")
    for number in (2, 3):
        ran(txbatch("run", job, *day(number)))
    ran(txbatch("gc", "days", "--keep-txids", "1"))
    comes(root, "x.csv", "2024-01-01T10:00Z,a", "2024-01-03T10:00Z,a")
    said = ran(txbatch("run", job, *day(4)))
    assert "late for txid 1: 1 record in x.csv; days: txid 1 is folded" in said
    assert restates(engine) == [(5, 3, "lookback: 1 record in x.csv")]


def test_what_was_given_up_is_told(txbatch: Txbatch, days: Callable[..., str], root: Path, engine: Engine) -> None:
    class Away(WithoutSpark):
        def emit(self, folder: AttemptFolder, assignment: Assignment) -> None:
            raise TransientError("away")

    job = days()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txbatch.wiring.Application", Away)
        assert txbatch("run", job, *day(2)).exit_code == 1
    ran(txbatch("abort", "days", "2", "--skip", "--why", "not needed"))
    comes(root, "x.csv", "2024-01-02T10:00Z,a")
    said = ran(txbatch("run", job, *day(4)))
    assert "late for txid 3: 1 record in x.csv; days: txid 3 gave its records up (not needed)" in said
    assert restates(engine) == []


def test_a_rebuild_counts_what_came_late(
    txbatch: Txbatch, days: Callable[..., str], root: Path, engine: Engine
) -> None:
    job = late_for_first(days, root, None)
    assert "late for txid 1" in ran(txbatch("run", job, *day(2)))
    ran(txbatch("rebuild", job, "--why", "all of it"))
    assert "late for" not in ran(txbatch("status"))
    assert "late for" not in ran(txbatch("run", job, *day(3)))


def test_a_late_record_that_cannot_be_counted_blocks_no_other_batch(
    txbatch: Txbatch, days: Callable[..., str], root: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refuses(LikeTheDriver):
        def emit(self, folder: AttemptFolder, assignment: Assignment) -> None:
            if assignment.position != assignment.attempt.txid:
                raise BadRecord("x.csv, line 1, field 'name': 'a' is no name")
            super().emit(folder, assignment)

    job = late_for_first(days, root)
    with monkeypatch.context() as patch:
        patch.setattr("txbatch.wiring.Application", Refuses)
        said = ran(txbatch("run", job, *day(2)))
    assert "late for txid 1: 1 record in x.csv; a record of the batch cannot be counted; report.attempts has" in said
    assert restates(engine) == []
    ran(txbatch("run", job, *day(3)))
    assert restates(engine) == [(5, 1, "lookback: 1 record in x.csv")], "the next run tries it again"


def test_what_a_killed_call_left_the_next_one_counts(
    txbatch: Txbatch, days: Callable[..., str], root: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dies(WithoutSpark):
        def emit(self, folder: AttemptFolder, assignment: Assignment) -> None:
            if assignment.position != assignment.attempt.txid:
                raise KeyboardInterrupt
            super().emit(folder, assignment)

    job = late_for_first(days, root)
    with monkeypatch.context() as patch:
        patch.setattr("txbatch.wiring.Application", Dies)
        assert txbatch("run", job, *day(2)).exit_code == 130
    assert restates(engine) == []
    ran(txbatch("run", job, *day(3)))
    assert restates(engine) == [(3, 1, "lookback: 1 record in x.csv")]
    assert counts(engine)["a"] == (2, 3)


def test_what_was_met_before_lookback_was_said_is_counted_once_it_is(
    txbatch: Txbatch, write_job: WriteJob, days: Callable[..., str], root: Path, engine: Engine
) -> None:
    job = late_for_first(days, root, None)
    ran(txbatch("run", job, *day(2)))
    write_job("days.py", job_text(root, "3 days"))
    ran(txbatch("run", job, *day(3)))
    assert restates(engine) == [(4, 1, "lookback: 1 record in x.csv")]


def test_before_the_first_look_files_are_compared_as_far_as_the_lookback_reaches(
    txbatch: Txbatch, days: Callable[..., str], root: Path, engine: Engine
) -> None:
    """As in a ledger of the version before: no batch says what it met."""
    job = late_for_first(days, root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txbatch.run.steps.Steps._look", lambda self, batch: None)
        ran(txbatch("run", job, *day(2)))
    with engine.begin() as connection:
        connection.execute(text("UPDATE txbatch.batch SET came_late = NULL"))
    ran(txbatch("run", job, *day(3)))
    assert restates(engine) == [(4, 1, "lookback: 1 record in x.csv")]


def test_two_runs_that_meet_the_same_file_count_it_once(
    txbatch: Txbatch, days: Callable[..., str], root: Path, engine: Engine
) -> None:
    """Both were emitted before the other one committed."""
    job = late_for_first(days, root)
    loaded, where = load_job(job), settings.resolve()
    with open_runner(loaded, where) as first, open_runner(loaded, where) as second:
        done = [next(batches) for batches in (first.run_each(_days(2)), second.run_each(_days(3)))]
        assert [batch.txid for batch in done] == [2, 3]
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE txbatch.batch SET came_late = (SELECT came_late FROM txbatch.batch WHERE txid = 2)")
        )
    ran(txbatch("run", job, *day(4)))
    assert restates(engine) == [(5, 1, "lookback: 1 record in x.csv")]
    ran(txbatch("run", job, *day(5)))
    assert len(restates(engine)) == 1


def _days(number: int) -> list[Any]:
    from txbatch import Interval

    return [Interval(datetime(2024, 1, number, tzinfo=UTC), datetime(2024, 1, number + 1, tzinfo=UTC))]


@pytest.mark.whole
def test_ten_thousand_late_files(txbatch: Txbatch, days: Callable[..., str], root: Path, engine: Engine) -> None:
    job = days()
    for number in range(10_000):
        (root / f"x{number:05}.csv").write_text("2024-01-01T10:00Z,a\n")
    ran(txbatch("run", job, *day(2)))
    assert restates(engine) == [(3, 1, "lookback: 10,000 records in x00000.csv, x00001.csv, x00002.csv and 9,997 more")]
    assert counts(engine)["a"] == (10_001, 3)
