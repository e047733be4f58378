"""The disk of the staging area is full in the middle: of a train, and of a call that follows. A small disk, mounted by root."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_support import DAYS, WORDS_OF_LOG, refused
from click.testing import Result
from forks import Fork
from slowness import slowness
from sqlalchemy import Engine, text
from support import until

from txbatch.spouts.partitioned_log import PartitionedLog

FULL = "No space left on device"
DAY = ("--interval", "2026-01-01T00Z", "2026-01-11T00Z", "--cron", "0 0 * * *")
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk takes root"),
]


class Disk:
    """A small one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._mount("-t", "tmpfs", "-o", "size=64k", "tmpfs")

    def _mount(self, *how: str) -> None:
        subprocess.run(["mount", *how, str(self.folder)], check=True)

    def fill(self) -> None:
        """Leave nothing: not before what was staged is gone, which would make room again."""
        until(lambda: not any(path.is_file() for path in self.folder.rglob("*")))
        with (self.folder / "ballast").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                return

    def grow(self) -> None:
        """Make room."""
        self._mount("-o", "remount,size=64m")

    def end(self) -> None:
        """Unmount it."""
        subprocess.run(["umount", str(self.folder)], check=True)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk(tmp_path / "staging")
    monkeypatch.setenv("TXBATCH_STAGING", made.folder.as_uri())
    yield made
    made.end()


def counted(engine: Engine, state: str) -> int:
    with engine.connect() as connection:
        there = text("SELECT 1 FROM pg_views WHERE (schemaname, viewname) = ('report', :state)")
        if not connection.execute(there, {"state": state}).all():
            return 0
        return int(connection.execute(text(f'SELECT COALESCE(sum("count"), 0) FROM report.{state}')).scalar_one())


@pytest.mark.rule("R7", "R10")
def test_a_train_stops_says_so_and_goes_on(
    txbatch: Callable[..., Result],
    engine: Engine,
    tmp_path: Path,
    write_job: Callable[[str, str], str],
    disk: Disk,
) -> None:
    (tmp_path / "in").mkdir()
    hours = [f"2026-01-{day:02}T09:00+00:00,nine" for day in range(1, 11)]
    (tmp_path / "in" / "a").write_text("\n".join(hours) + "\n")
    job = write_job("days.py", DAYS.format(root=str(tmp_path / "in")))
    refused(txbatch("run", job, *DAY), FULL)
    with engine.connect() as connection:
        txids = connection.execute(
            text("SELECT txid FROM txbatch.batch WHERE status = 'committed' ORDER BY 1")
        ).scalars()
        assert (committed := list(txids)) == list(range(1, len(committed) + 1))
    assert counted(engine, "days") == len(committed) < 10
    refused(txbatch("run", job, *DAY), FULL)
    disk.grow()
    assert txbatch("run", job, *DAY).exit_code == 0
    assert counted(engine, "days") == 10


@pytest.mark.rule("R7", "R10")
def test_a_call_that_follows_ends_says_so_and_goes_on(
    home: Path,
    postgres_url: str,
    engine: Engine,
    tmp_path: Path,
    write_job: Callable[[str, str], str],
    process_without_spark: Callable[..., Fork],
    disk: Disk,
) -> None:
    log = PartitionedLog(tmp_path / "log")
    log.append("0", ["a", "b"])
    job = write_job("words.py", WORDS_OF_LOG.format(root=str(tmp_path / "log")))

    def begin() -> Fork:
        return process_without_spark("follow", job, "--json", TXBATCH_DATABASE_URL=postgres_url)

    with begin() as follower:
        until(lambda: counted(engine, "words") == 2)
        disk.fill()
        log.append("0", ["c"])
        said, err = follower.communicate(timeout=120 * slowness())
    assert (follower.returncode, FULL in json.loads(said)["message"]) == (1, True), err
    assert counted(engine, "words") == 2
    disk.grow()
    with begin() as follower:
        until(lambda: counted(engine, "words") == 3)
        follower.send_signal(signal.SIGTERM)
        _, err = follower.communicate(timeout=120 * slowness())
    assert follower.returncode == 0, err
