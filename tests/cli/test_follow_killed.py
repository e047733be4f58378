"""`txbatch follow` with real Spark, of files, in trains: it is killed over and over while files come; none counts twice.

`TXBATCH_SOAK_KILLS=50` does it fifty times.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sizes import some_of
from slowness import slowness
from sqlalchemy import Engine, text
from support import until

KILLS = some_of(1, 2, "TXBATCH_SOAK_KILLS")
JOB = """
from txbatch import *

topology = Topology("followed")
lines = topology.new_stream("in", FileSpout({root!r}, files_per_batch=2))
lines.group_by("line").persistent_aggregate(OpaqueState("followed"), count=Count())
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""
pytestmark = pytest.mark.timeout(300 + 30 * KILLS)


class Files:
    """Come all the time, each whole at once, by a thread; `said` is what they say, counted without txbatch."""

    def __init__(self, folder: Path, at_random: random.Random) -> None:
        self.folder, self.at_random, self.said, self.many = folder, at_random, Counter[str](), 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._come, daemon=True)

    def __enter__(self) -> Files:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _come(self) -> None:
        while not self._end.wait(self.at_random.random() / 3):
            for _ in range(self.at_random.randrange(1, 4)):
                lines = [f"w{self.at_random.randrange(7)}" for _ in range(self.at_random.randrange(1, 9))]
                hidden = self.folder / "_written"
                hidden.write_text("\n".join(lines))
                self.said.update(lines)
                self.many += 1
                hidden.rename(self.folder / f"{self.at_random.random()}-{self.many}")


class Follower:
    """The process; what it says goes to a file."""

    def __init__(self, job: Path, log: Path, environment: dict[str, str]) -> None:
        self.log, self.environment = log, {**os.environ, **environment}
        self.command = [str(Path(sys.executable).with_name("txbatch")), "follow", str(job), "--json"]
        self.begin()

    def begin(self) -> None:
        """Start it."""
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(self.command, env=self.environment, stdout=out, stderr=out)

    def lives(self) -> bool:
        """True; an error shows what it said."""
        assert self.process.poll() is None, self.log.read_text()[-4000:]
        return True

    def end(self, number: signal.Signals) -> int:
        """End it by a signal; return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(120 * slowness())


@pytest.fixture
def follower(home: Path, postgres_url: str, tmp_path: Path) -> Iterator[Follower]:
    job = tmp_path / "followed.py"
    job.write_text(JOB.format(root=str(tmp_path / "in")))
    (tmp_path / "in").mkdir()
    found = Follower(job, tmp_path / "log", {"TXBATCH_DATABASE_URL": postgres_url})
    yield found
    if found.process.poll() is None:
        found.end(signal.SIGKILL)


@pytest.mark.rule("R3", "R5", "R6", "R10")
def test_a_follower_in_trains_that_is_killed_counts_each_file_once(
    follower: Follower, engine: Engine, tmp_path: Path
) -> None:
    """At any moment, also while Spark is at work, and started anew at once."""

    def ask(query: str) -> Any:
        with engine.connect() as connection:
            return connection.execute(text(query)).scalar_one()

    def committed() -> int:
        return int(ask("SELECT count(*) FROM report.batches WHERE status = 'committed'"))

    def counts() -> dict[str, int]:
        with engine.connect() as connection:
            return dict(connection.execute(text('SELECT line, "count" FROM report.followed')).tuples().all())

    at_random = random.Random(15)
    with Files(tmp_path / "in", random.Random(16)) as files:
        until(lambda: follower.lives() and committed(), seconds=120)
        for number in range(KILLS):
            before = committed()
            if number % 2 == 0:
                until(lambda before=before: follower.lives() and committed() > before, seconds=120)
            time.sleep(at_random.random() * 3)
            follower.end(signal.SIGKILL)
            follower.begin()
            assert all(many <= files.said[line] for line, many in counts().items())
    until(lambda: follower.lives() and counts() == dict(files.said), seconds=300)
    assert follower.end(signal.SIGTERM) == 0, follower.log.read_text()[-4000:]
    assert ask("SELECT count(*) FROM txbatch.batch WHERE status IN ('planned', 'emitted')") == 0
    assert ask("SELECT sum(records) FROM report.batches WHERE status = 'committed'") == files.said.total()
    assert ask("SELECT count(*) FROM report.partitions") == files.many
    assert "batches by one job" in follower.log.read_text()
    attempts = (
        "SELECT string_agg(status || ' ' || n, ', ') FROM (SELECT status, count(*) n FROM report.attempts GROUP BY 1)"
    )
    trains = follower.log.read_text().count("batches by one job")
    print(f"{KILLS} kills, {files.many} files, {committed()} batches, {trains} trains; attempts: {ask(attempts)}")
