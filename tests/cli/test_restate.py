"""`txbatch restate`: a wrong file is mended, and its day counted again, once; what cannot be is refused, and nothing changed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_support import DAYS, contents, refused, rows
from click.testing import Result
from forks import Fork
from sqlalchemy import Engine, text
from without_spark import WithoutSpark

from txbatch.core.errors import TransientError
from txbatch.core.protocol import restate
from txbatch.launch.job_file import LAST_LINES

pytestmark = pytest.mark.rule("R17")
Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
BARE = 'stream.group_by("name").persistent_aggregate(TransactionalState("bare", contributions=False), count=Count())\n'
FIRST = "2024-01-01T10:00Z,a 2024-01-01T11:00Z,wrong 2024-01-02T10:00Z,b 2024-01-03T10:00Z,b"
MENDED = FIRST.replace("wrong", "b 2024-01-01T12:00Z,c")


def day(first: int, last: int | None = None) -> list[str]:
    return ["--interval", f"2024-01-0{first}T00:00Z", f"2024-01-0{(last or first) + 1}T00:00Z"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "in" / "one"
    file.parent.mkdir()
    file.write_text(FIRST)
    return file


@pytest.fixture
def job(source: Path, txbatch: Txbatch, write_job: WriteJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two days are committed, of a job that the ledger knows relative to the project's folder."""
    write_job("jobs/days.py", DAYS.format(root=str(source.parent)))
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        assert txbatch("run", "jobs/days.py", *day(number)).exit_code == 0
    return "jobs/days.py"


def counts(engine: Engine) -> dict[str, tuple[int, int]]:
    with engine.connect() as connection:
        found = connection.execute(text("SELECT name, count, txid FROM report.days"))
        return {name: (count, txid) for name, count, txid in found}


def test_a_mended_file_is_counted_again_in_its_place(txbatch: Txbatch, job: str, source: Path, engine: Engine) -> None:
    assert counts(engine) == {"a": (1, 1), "wrong": (1, 1), "b": (1, 2)}
    source.write_text(MENDED)
    (row,) = rows(txbatch("restate", "days", "1", "--why", "a typing error", "--json"))
    assert [row[name] for name in ("position", "txid", "replaces", "records_before", "records", "keys")] == [
        *(1, 3, 1, 2, 3),
        {"days": 4},
    ]
    assert (row["reason"], bool(row["requested_by"])) == ("a typing error", True)
    assert counts(engine) == {"a": (1, 3), "b": (2, 3), "c": (1, 3)}
    told = "days: txid 1 is not changed, counted again as txid 3; to count it again: txbatch restate days 1"
    assert told in txbatch("run", job, *day(1)).stderr
    assert rows(txbatch("run", job, *day(3), "--json"))[0]["txid"] == 4, "the next batch goes on"
    assert counts(engine)["b"] == (3, 4)


def test_an_interval_names_all_batches_in_it_each_once(
    txbatch: Txbatch, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")
    told = txbatch("restate", "days", *day(1, 3), "--why", "late files")
    assert told.exit_code == 0, told.output
    assert [line.split()[:2] for line in told.stdout.splitlines()][-2:] == [["1", "3"], ["2", "4"]]
    again = txbatch("restate", "days", "1", "2", "3", "--why", "late files", "--json")
    assert [(row["position"], row["replaces"], row["txid"]) for row in rows(again)] == [(1, 3, 5), (2, 4, 6)]


@pytest.mark.parametrize("point", ["initialize.planned", "emit.recorded", "commit.before_commit", "commit.committed"])
def test_killed_and_called_again_it_goes_on(
    txbatch: Txbatch,
    job: str,
    source: Path,
    engine: Engine,
    process_without_spark: Callable[..., Fork],
    tmp_path: Path,
    point: str,
) -> None:
    source.write_text(MENDED)
    asked = ("restate", str(tmp_path / job), "1", "2", "--why", "a typing error", "--json")
    killed = process_without_spark(*asked, TXBATCH_FAILPOINTS=f"{point}=kill:{tmp_path / 'once'}")
    assert killed.communicate()[0] == ""
    assert killed.returncode == -signal.SIGKILL
    done = txbatch(*asked)
    assert [(row["position"], row["txid"]) for row in rows(done)] == [(1, 3), (2, 4)], done.output
    assert counts(engine) == {"a": (1, 3), "b": (2, 4), "c": (1, 3)}


@pytest.mark.rule("R3")
def test_what_goes_on_says_which_files_differ_from_its_plan(
    txbatch: Txbatch, job: str, source: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    source.write_text(MENDED)

    def fails(*_: object) -> None:
        raise TransientError("no Spark")

    with monkeypatch.context() as patched:
        patched.setattr(WithoutSpark, "emit", fails)
        assert txbatch("restate", "days", "1", "--why", "a typing error").exit_code == 1
    source.write_text(f"{MENDED} 2024-01-01T13:00Z,d")
    assert txbatch("restate", "days", "1", "--why", "a typing error").exit_code == 0
    (told,) = (each for each in caplog.messages if "goes on" in each)
    assert told.startswith("days: txid 3 goes on as it was planned; of its source differs since: one (grown from ")
    assert told.endswith("; its interval may have other records now: `txbatch verify days 1` tells")


@pytest.mark.parametrize("command", [("restate", "days", "1"), ("abort", "days", "1"), ("change", "jobs/days.py")])
def test_a_reason_has_an_end(txbatch: Txbatch, job: str, command: tuple[str, ...]) -> None:
    refused = txbatch(*command, "--why", "x" * 1_001)
    assert refused.exit_code == 2
    assert "it has 1,001 characters; say it in 1,000, and where more of it stands" in refused.stderr


@pytest.mark.rule("R15")
def test_what_is_committed_says_what_changed_since_and_how_it_is_counted_again(
    txbatch: Txbatch, job: str, source: Path
) -> None:
    again = '; to count it again: txbatch restate days 1 --why "..."'
    assert f"days: txid 1 is not changed{again}\n" in txbatch("run", job, *day(1)).stderr
    source.write_text(MENDED)
    differs = "; of its source differs since: one (grown from"
    assert f"days: txid 1 is not changed{differs}" in txbatch("run", job, *day(1)).stderr
    refused(txbatch("abort", "days", "1", "--why", "wrong"), 'in its place: `txbatch restate days 1 --why "..."`')


def test_a_plan_of_it_shows_the_effect_and_stores_nothing(
    txbatch: Txbatch, job: str, source: Path, engine: Engine, home: Path
) -> None:
    source.write_text(MENDED)
    before, staged = contents(engine), sorted((home / "staging").rglob("*"))
    (planned,) = rows(txbatch("restate", job, "1", "--plan", "--json"))
    shown = txbatch("restate", job, "1", "--plan").stdout
    assert (contents(engine), sorted((home / "staging").rglob("*"))) == (before, staged)
    assert [planned[name] for name in ("position", "replaces", "records_before", "records_after")] == [1, 1, 2, 3]
    (state,) = planned["states"]
    examples = state.pop("examples")
    assert state == {"state": "days", "keys_touched": 4, "keys_changed": 3, "rows_before": 3, "rows_after": 3}
    values = [[each["key"]["name"], each["stored"], each["recomputed"]] for each in examples]
    assert values == [
        ["b", {"count": "1"}, {"count": "2"}],
        ["c", None, {"count": "1"}],
        ["wrong", {"count": "1"}, None],
    ]
    assert "days, name b: count=1 -> count=2" in shown
    assert "would be counted again: 3 records, 2 before" in shown
    rows(txbatch("restate", job, "1", "--why", "a typing error", "--json"))
    (again,) = rows(txbatch("restate", job, "1", "--plan", "--json"))
    assert (again["replaces"], again["states"][0]["keys_changed"]) == (3, 0)
    refused(txbatch("restate", job, "9", "--plan"), "topology 'days' has no txid 9")
    both = rows(txbatch("restate", "days", "--interval", "2024-01-01T00:00Z", "2024-01-03T00:00Z", "--plan", "--json"))
    assert [(each["position"], each["replaces"]) for each in both] == [(1, 3), (2, 2)]


WRONG = {
    "unknown": (["9"], "topology 'days' has no txid 9"),
    "aborted": (["3"], "txid 3 was aborted and counts nothing"),
    "given up": (["4"], "txid 4 gave its records up (spoilt); to count them after all, restate it with --skipped"),
    "nothing there": (day(8), "nothing of 2024-01-08T00:00:00+00:00/2024-01-09T00:00:00+00:00 is committed"),
    "overlaps": (
        ["--interval", "2024-01-01T00:00Z", "2024-01-02T12:00Z"],
        "txid 2 counts 2024-01-02T00:00:00+00:00/2024-01-03T00:00:00+00:00, of which",
    ),
}


@pytest.fixture
def spoilt(txbatch: Txbatch, job: str, source: Path) -> str:
    """The third day was aborted, and given up."""
    source.write_text(FIRST.replace("3T10:00Z,b", "3T10:00Z"))
    assert txbatch("run", job, *day(3)).exit_code == 1
    assert txbatch("abort", "days", "3", "--why", "spoilt", "--skip").exit_code == 0
    source.write_text(FIRST)
    return job


def test_what_cannot_be_counted_again_is_refused_and_nothing_changed(
    txbatch: Txbatch, spoilt: str, engine: Engine, source: Path
) -> None:
    before = contents(engine)
    for asked, told in WRONG.values():
        refused(txbatch("restate", "days", *asked, "--why", "wrong"), told)
        refused(txbatch("restate", "days", *asked, "--plan"), told)
    for asked in (["1", "--why", " "], ["--why", "x"], ["1", *day(1), "--why", "x"], ["1"], ["--plan"]):
        assert txbatch("restate", "days", *asked).exit_code == 2
    assert contents(engine) == before
    assert [row["txid"] for row in rows(txbatch("restate", "days", "4", "--why", "x", "--skipped", "--json"))] == [5]
    assert counts(engine)["b"] == (2, 5)


def test_a_source_that_is_gone_refuses_all_of_them(txbatch: Txbatch, job: str, engine: Engine, source: Path) -> None:
    before = contents(engine)
    source.unlink()
    source.parent.rmdir()
    refused(txbatch("restate", "days", "1", "2", "--why", "x"), str(source.parent))
    assert contents(engine) == before


@pytest.fixture
def two_files(source: Path, job: str, txbatch: Txbatch) -> Path:
    """Both days are counted of two files, of which the second has one record of the first day."""
    other = source.parent / "two"
    other.write_text("2024-01-01T15:00Z,b")
    assert txbatch("restate", "days", "1", "2", "--why", "a late file").exit_code == 0
    return other


@pytest.mark.parametrize("asked", [["restate", "days", "1", "--why", "x"], ["restate", "jobs/days.py", "1", "--plan"]])
def test_records_whose_file_is_gone_are_not_taken_out_in_silence(
    txbatch: Txbatch, two_files: Path, engine: Engine, asked: list[str]
) -> None:
    before = counts(engine)
    two_files.unlink()
    told = "two of stream 'in' is not there any more, and the interval had 3 records then, 2 records now"
    refused(txbatch(*asked), told)
    assert counts(engine) == before
    (planned,) = rows(txbatch("restate", "days", "1", "--plan", "--accept-missing", "--json"))
    assert (planned["records_before"], planned["records_after"]) == (3, 2)
    assert [row["status"] for row in rows(txbatch("batches", "days", "--json")) if row["txid"] > 4] in ([], ["aborted"])
    done = rows(txbatch("restate", "days", "2", "--why", "none of its records is in that file", "--json"))
    assert [row["position"] for row in done] == [2]
    done = rows(txbatch("restate", "days", "1", "--why", "x", "--accept-missing", "--json"))
    assert [(row["records_before"], row["records"]) for row in done] == [(3, 2)]
    assert counts(engine)["b"][0] == 1
    assert txbatch("restate", "days", "1", "--why", "once more").exit_code == 0, "what was accepted is not missed again"


@pytest.mark.parametrize("rebuilt", [False, True], ids=["restate", "rebuild"])
def test_a_file_that_is_back_before_the_commit_is_missed_all_the_same(
    txbatch: Txbatch, job: str, two_files: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, rebuilt: bool
) -> None:
    """The plan was made without the file, so that its records are not among those read."""
    before, content, check = counts(engine), two_files.read_text(), restate.check_whole

    def back(*given: Any) -> None:
        two_files.write_text(content)
        check(*given)

    two_files.unlink()
    monkeypatch.setattr(restate, "check_whole", back)
    asked = ["rebuild", job, "--why", "x"] if rebuilt else ["restate", "days", "1", "--why", "x"]
    if rebuilt:
        Path(job).write_text(Path(job).read_text().replace("count=Count()", 'count=Count(), least=Min("name")'))
    told = (
        "two of stream 'in' was not there when the interval was planned again, and the interval had 3 records then, 2"
    )
    refused(txbatch(*asked), told)
    assert counts(engine) == before


def test_records_in_other_files_by_now_are_counted_again(txbatch: Txbatch, two_files: Path, engine: Engine) -> None:
    before = {name: count for name, (count, _) in counts(engine).items()}
    two_files.rename(two_files.with_name("zwei"))
    assert txbatch("restate", "days", "1", "--why", "x").exit_code == 0
    assert {name: count for name, (count, _) in counts(engine).items()} == before


@pytest.mark.rule("R23")
def test_a_rebuild_takes_no_records_out_whose_file_is_gone(
    txbatch: Txbatch, two_files: Path, job: str, engine: Engine
) -> None:
    before = counts(engine)
    two_files.unlink()
    Path(job).write_text(Path(job).read_text().replace("count=Count()", 'count=Count(), least=Min("name")'))
    for asked in (["rebuild", job, "--plan"], ["rebuild", job, "--why", "x"]):
        refused(txbatch(*asked), "two of stream 'in' is not there any more")
    assert counts(engine) == before
    two_files.write_text("2024-01-01T15:00Z,b")
    assert txbatch("rebuild", job, "--why", "x").exit_code == 0
    assert {name: count for name, (count, _) in counts(engine).items()} == {
        name: each[0] for name, each in before.items()
    }


@pytest.mark.rule("R23")
def test_what_only_a_rebuild_counted_is_not_taken_out_in_silence_either(
    txbatch: Txbatch, source: Path, job: str, engine: Engine
) -> None:
    late = source.parent / "two"
    late.write_text("2024-01-01T15:00Z,b")
    assert txbatch("rebuild", job, "--why", "with what came late").exit_code == 0
    before = counts(engine)
    late.unlink()
    refused(txbatch("restate", "days", "1", "--why", "x"), "two of stream 'in' is not there any more")
    refused(txbatch("rebuild", job, "--why", "once more"), "two of stream 'in' is not there any more")
    assert counts(engine) == before


def test_parts_of_an_interval_that_no_batch_counts_are_named(txbatch: Txbatch, job: str) -> None:
    told = txbatch("restate", "days", *day(1, 3), "--why", "late files").stderr
    assert "days: no batch counts 2024-01-03T00:00:00+00:00/2024-01-04T00:00:00+00:00, so nothing of it is" in told


@pytest.mark.rule("R15")
def test_a_run_over_many_intervals_says_how_many_are_committed_already(txbatch: Txbatch, job: str) -> None:
    told = txbatch("run", job, *day(1, 4), "--cron", "0 0 * * *").stderr
    assert "days: 2 of 4 intervals are committed and stay as they are; `txbatch verify days` tells whether" in told
    assert "4 of 4 intervals are committed" in txbatch("run", job, *day(1, 4), "--cron", "0 0 * * *").stderr


def test_a_finished_one_that_is_asked_for_again_says_so(txbatch: Txbatch, job: str, caplog: Any) -> None:
    for _ in range(2):
        assert txbatch("restate", "days", "1", "--why", "x").exit_code == 0
    told = [each for each in caplog.messages if "asked before" in each]
    assert told == ["days: the same was asked before, and counted as txid 3; it is counted again"]


@pytest.mark.rule("R16")
def test_an_abort_names_the_run_whose_batch_it_takes_away_and_that_run_is_told_why(
    txbatch: Txbatch, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Result] = []

    def aborted_meanwhile(*_: object) -> None:
        told.append(txbatch("abort", "days", "3", "--why", "the wrong file"))
        raise TransientError("its heartbeat is gone")

    monkeypatch.setattr(WithoutSpark, "emit", aborted_meanwhile)
    failed = txbatch("run", job, *day(3))
    assert failed.exit_code == 1
    assert told[0].exit_code == 0
    assert "was at work on txid 3; it fails, and its next try plans anew" in told[0].stderr


def test_a_state_without_contributions_refuses(txbatch: Txbatch, source: Path, write_job: WriteJob) -> None:
    job = write_job("bare.py", DAYS.format(root=str(source.parent)) + BARE)
    assert txbatch("run", job, *day(1)).exit_code == 0
    refused(txbatch("restate", job, "1", "--why", "x"), "state 'bare' keeps no contributions")


def test_a_topology_whose_job_file_is_not_here_says_how_it_is_named(
    txbatch: Txbatch, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    refused(txbatch("restate", "days", "1", "--why", "x"), "jobs/days.py, is neither here nor in a folder above")
    refused(txbatch("restate", "nights", "1", "--why", "x"), "no topology 'nights' is known")
    other = DAYS.format(root=str(tmp_path)).replace('Topology("days")', 'Topology("nights")')
    (tmp_path / job).write_text(f"from txbatch import *\n{other}{LAST_LINES}\n")
    monkeypatch.chdir(tmp_path)
    refused(txbatch("restate", "days", "1", "--why", "x"), "defines topology nights by now")
