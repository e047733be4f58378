"""`txbatch status` and `txbatch plan` say which files differ from what was counted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import DAYS as SHOP
from click.testing import Result
from without_spark import WithoutSpark

from txbatch.core.errors import TransientError

Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
JOB = """
class Files(FileSpout):
    def batch(self, plan):
        return [("a",) for name in plan["partitions"]]
topology = Topology("files")
stream = topology.new_stream("in", Files({root!r}))
stream.group_by("line").persistent_aggregate(OpaqueState("files"), count=Count())
"""
DAYS = """
class Days(IntervalSpout):
    def batch(self, plan):
        return [("a",) for name in plan["files"]]
topology = Topology("days")
stream = topology.new_stream("in", Days({root!r}, "at timestamp, name string", time="at")).project("name")
stream.group_by("name").persistent_aggregate(TransactionalState("days"), count=Count())
"""
MAIN = "if __name__ == '__main__':\n    raise SystemExit(emit(topology))\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in "abc":
        (folder / name).write_text("line\n")
    return folder


def test_files_that_were_read_once(txbatch: Txbatch, write_job: WriteJob, root: Path) -> None:
    job = write_job("files.py", JOB.format(root=str(root)) + MAIN)
    done = txbatch("run", job)
    assert done.exit_code == 0, done.output
    assert "differ" not in txbatch("status").output + txbatch("plan", job).output
    (root / "a").write_text("line\nmore\n")
    (root / "b").unlink()
    (root / "empty").touch()
    for said in (txbatch("status"), txbatch("plan", job)):
        assert said.exit_code == 0, said.output
        assert "files: 3 files differ from what was counted; the difference is not counted" in said.output
        assert "  a: grown from 5 to 10 bytes\n" in said.output
        assert "  b: gone\n" in said.output
        assert "  empty: empty: it is read once it is filled\n" in said.output
    (row,) = json.loads(txbatch("status", "files", "--json").stdout)
    assert [each["file"] for each in row["changed"]] == ["a", "b", "empty"]
    for path in root.iterdir():
        path.unlink()
    root.rmdir()
    gone = txbatch("status")
    assert (gone.exit_code, "not there: its files were not looked at" in gone.output) == (0, True)


def test_files_that_are_read_by_time(txbatch: Txbatch, write_job: WriteJob, root: Path) -> None:
    job = write_job("days.py", DAYS.format(root=str(root)) + MAIN)
    for day in (1, 2):
        done = txbatch("run", job, "--interval", f"2026-01-0{day}T00:00Z", f"2026-01-0{day + 1}T00:00Z")
        assert done.exit_code == 0, done.output
        (root / "a").write_text("line\n" * (day + 1))
    said = txbatch("status").output
    assert "days: 1 file differs from what was counted" in said
    assert "  a: grown from 10 to 15 bytes; txid 2 was the last batch to look at the file\n" in said
    (root / "late").write_text("line\n")
    day = txbatch("plan", job, "--interval", "2026-01-01T00:00Z", "2026-01-02T00:00Z").output
    assert "  late: appeared after txid 1 was planned: of this interval nothing of the file is counted\n" in day
    assert "late" not in txbatch("plan", job, "--interval", "2026-01-03T00:00Z", "2026-01-04T00:00Z").output


@pytest.fixture
def three_days(txbatch: Txbatch, write_job: WriteJob, root: Path) -> str:
    """Three days are committed, of a file each."""
    for file in root.iterdir():
        file.unlink()
    for day in (1, 2, 3):
        (root / f"{day}.csv").write_text(f"2026-03-0{day}T10:00Z,a\n")
    job = write_job("shop.py", SHOP.format(root=str(root)) + MAIN)
    for day in (1, 2, 3):
        done = txbatch("run", job, *interval(day))
        assert done.exit_code == 0, done.output
    return job


def interval(day: int) -> list[str]:
    return ["--interval", f"2026-03-0{day}T00:00Z", f"2026-03-0{day + 1}T00:00Z"]


@pytest.mark.rule("R15", "R17")
def test_what_was_restated_raises_no_alarm_about_the_days_that_are_right(
    txbatch: Txbatch, three_days: str, root: Path
) -> None:
    for day in (1, 2):
        (root / f"{day}.csv").write_text(f"2026-03-0{day}T10:00Z,mended\n")
    assert "days: 2 files differ from what was counted" in txbatch("status").output
    for day in (2, 1):
        assert txbatch("restate", three_days, str(day), "--why", "mended").exit_code == 0
    (row,) = json.loads(txbatch("status", "--json").stdout)
    assert row["changed"] == []
    assert ".csv" not in txbatch("status").stdout
    again = txbatch("run", three_days, *interval(3)).stderr
    assert (
        "days: txid 3 is not changed; of its source differs since: 1.csv (grown from 20 to 25 bytes), 2.csv (grown"
        in again
    )
    assert "; its interval may have other records now: `txbatch verify days 3` tells\n" in again
    assert "txbatch restate" not in again


@pytest.mark.rule("R24")
def test_what_only_newer_batches_were_planned_with_is_not_named_and_not_kept_secret(
    txbatch: Txbatch, three_days: str, root: Path
) -> None:
    with (root / "1.csv").open("a") as file:
        file.write("2026-03-01T11:00Z,late\n")
    said = txbatch("status").output
    assert re.search(r"  1\.csv: grown from [^;]*; txid 3 was the last batch to look at the file\n", said)
    (root / "4.csv").write_text("2026-03-04T10:00Z,a\n")
    assert txbatch("run", three_days, *interval(4)).exit_code == 0
    said = txbatch("status").output
    told = "1 file is as newer batches were planned with; older ones may have counted other records: "
    assert f"days: {told}`txbatch verify days` tells" in said
    assert "1.csv" not in said
    (row,) = json.loads(txbatch("status", "--json").stdout)
    assert [(each["file"], each["txid"], each["seen_by"]) for each in row["changed"]] == [("1.csv", 3, 4)]


@pytest.mark.rule("R3", "R16")
def test_a_plan_whose_file_is_another_by_now_is_refused_without_spark_and_says_which_to_abort(
    txbatch: Txbatch, three_days: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emitted: list[object] = []

    def no_spark(*given: object) -> None:
        emitted.append(given)
        raise TransientError("no Spark")

    (root / "4.csv").write_text("2026-03-04T10:00Z,wrong\n")
    with monkeypatch.context() as patched:
        patched.setattr(WithoutSpark, "emit", no_spark)
        assert txbatch("run", three_days, *interval(4)).exit_code == 1
        assert len(emitted) == 1
        (root / "4.csv").write_text("2026-03-04T10:00Z,a\n")
        told = f"days: txid 4: {root}/4.csv had 24 bytes when it was planned, now 20; restore it, and the retry reads "
        told += "it; or, if the file is right now, abort the batch "
        told += '(`txbatch abort days 4 --why "..."`) and run again: the next plan reads the file as it is'
        for _ in range(2):
            failed = txbatch("run", three_days, *interval(4))
            assert (failed.exit_code, failed.stderr.count("4.csv had"), told in failed.stderr) == (1, 1, True)
        assert len(emitted) == 1, "nothing was asked of Spark"
    said = txbatch("status").output
    assert "days: attempt 4:3 failed at" in said
    assert told in said
    assert txbatch("abort", "days", "4", "--why", "mended").exit_code == 0
    done = txbatch("run", three_days, *interval(4))
    assert done.exit_code == 0, done.output


@pytest.mark.rule("R3")
def test_batches_that_a_call_left_are_not_emitted_by_one_job_if_a_file_of_theirs_is_another(
    txbatch: Txbatch, three_days: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emitted: list[object] = []

    def no_spark(*given: object) -> None:
        emitted.append(given)
        raise TransientError("no Spark")

    asked = ("run", three_days, "--interval", "2026-03-04T00:00Z", "2026-03-06T00:00Z", "--cron", "0 0 * * *")
    with monkeypatch.context() as patched:
        for how in ("emit", "begin"):
            patched.setattr(WithoutSpark, how, no_spark)
        assert txbatch(*asked).exit_code == 1
        assert emitted
        emitted.clear()
        (root / "1.csv").write_text("short\n")
        failed = txbatch(*asked)
    assert (failed.exit_code, emitted) == (1, [])
    assert 'abort the batch (`txbatch abort days 4 --why "..."`)' in failed.stderr
