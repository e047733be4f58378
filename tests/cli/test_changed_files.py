"""`txbatch status` and `txbatch plan` say which files differ from what was counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

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
    assert "  a since txid 2 was planned: grown from 10 to 15 bytes\n" in said
    (root / "late").write_text("line\n")
    day = txbatch("plan", job, "--interval", "2026-01-01T00:00Z", "2026-01-02T00:00Z").output
    assert "  late since txid 1 was planned: appeared: of this interval nothing of it is counted\n" in day
    assert "late" not in txbatch("plan", job, "--interval", "2026-01-03T00:00Z", "2026-01-04T00:00Z").output
