"""The steps of one batch per day, in a process that is killed with SIGKILL at every tenth attempt, and begins again.

Each life is forked from this program, which has only imported. What a life must know of those before it stands in the
ledger; but for which days are done, and how many attempts there were, in two files of the folder.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import datetime
from multiprocessing.connection import Client
from pathlib import Path
from random import Random

from txbatch import settings
from txbatch.core.errors import TransientError
from txbatch.core.transaction import Assignment, Batch, BatchStatus, Interval, Run
from txbatch.launch.job_file import load_job
from txbatch.storage.staging import AttemptFolder
from txbatch.wiring import open_steps

POINTS = [
    "initialize.planned",
    "emit.attempt_started",
    "emit.manifest_written",
    "emit.recorded",
    "commit.loaded",
    "commit.before_commit",
    "commit.committed",
    "success.cleaned",
]


class Life:
    """One process: from the day that the one before it was killed at, until it is killed itself."""

    def __init__(self, job: str, folder: Path, seed: int) -> None:
        self.steps, self.folder, self.seed = open_steps(load_job(job), settings.resolve()), folder, seed
        self.spark = Client(str(folder / "socket"))

    def live(self) -> None:
        """All days that are not done yet."""
        done = set(lines(self.folder / "done"))
        for day in lines(self.folder / "days"):
            if day not in done:
                self.finish(day)
                append(self.folder / "done", day)
        self.spark.send("end")

    def finish(self, day: str) -> None:
        """A day's batch through what is left of its steps."""
        self.arm(1 + len(lines(self.folder / "attempts")))
        start, end = map(datetime.fromisoformat, day.split("/"))
        run = Run(f"year:{day}", interval=Interval(start, end))
        batch = self.steps.initialize_transaction(run)
        assert isinstance(batch, Batch), batch
        if batch.status is BatchStatus.PLANNED:
            batch = self.steps.emit_batch(batch, run, self.submit)
        self.steps.commit(batch)
        self.steps.success(batch)

    def arm(self, attempt: int) -> None:
        """Every tenth attempt dies, once, at a point that the seed chooses."""
        point = Random(f"{self.seed} {attempt}").choice(POINTS)
        armed = f"{point}=kill:{self.folder / 'killed'}/{attempt}-{point}" if attempt % 10 == 0 else ""
        os.environ["TXBATCH_FAILPOINTS"] = armed

    def submit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        """Let the one Spark session do it."""
        append(self.folder / "attempts", str(assignment.attempt))
        self.spark.send(folder.uri)
        application, error = self.spark.recv()
        append(self.folder / "applications", application)
        if error:
            raise TransientError(error)


def lines(file: Path) -> list[str]:
    """What the file says; nothing when it is not there."""
    return file.read_text().splitlines() if file.exists() else []


def append(file: Path, line: str) -> None:
    """Say it for good."""
    with file.open("a") as open_file:
        open_file.write(line + "\n")


def main(job: str, folder: Path, seed: int) -> int:
    """Life after life, until one ends by itself."""
    while True:
        child = os.fork()
        if not child:
            Life(job, folder, seed).live()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
