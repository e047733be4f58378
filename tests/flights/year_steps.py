"""One batch per day, in a process that is killed with SIGKILL at every thirtieth attempt, and begins again.

Each life is forked from this program, which has only imported, and has a Spark application of its own. What a life must
know of those before it stands in the ledger; but for which days are done, and how many attempts there were, in two files of
the folder.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from datetime import datetime
from pathlib import Path

from txbatch import settings
from txbatch.core.transaction import Assignment, Interval
from txbatch.job_file import load_job
from txbatch.runner import Runner
from txbatch.storage.staging import AttemptFolder

POINTS = [
    "emit.manifest_written",
    "commit.before_commit",
    "emit.attempt_started",
    "commit.committed",
    "initialize.planned",
    "emit.recorded",
    "success.cleaned",
    "commit.loaded",
]
ATTEMPTS_PER_LIFE = 30


class Life(Runner):
    """One process: from the day that the one before it was killed at, until it is killed itself."""

    def __init__(self, job: str, folder: Path) -> None:
        super().__init__(load_job(job), settings.load(), "local[2]")
        self.folder = folder

    def live(self) -> None:
        """All days that are not done yet."""
        done = set(lines(self.folder / "done"))
        for day in lines(self.folder / "days"):
            if day not in done:
                self.arm(1 + len(lines(self.folder / "attempts")))
                (batch,) = self.run(f"year:{day}", Interval(*map(datetime.fromisoformat, day.split("/"))))
                assert batch.succeeded
                append(self.folder / "done", day)

    def arm(self, attempt: int) -> None:
        """One attempt dies, once, at each point in its turn."""
        life, rest = divmod(attempt, ATTEMPTS_PER_LIFE)
        point = POINTS[(life - 1) % len(POINTS)]
        armed = f"{point}=kill:{self.folder / 'killed'}/{attempt}-{point}" if rest == 0 else ""
        os.environ["TXBATCH_FAILPOINTS"] = armed

    def submit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        """Run the job on an attempt's folder, and count it."""
        append(self.folder / "attempts", str(assignment.attempt))
        super().submit(folder, assignment)


def lines(file: Path) -> list[str]:
    """What the file says; nothing when it is not there."""
    return file.read_text().splitlines() if file.exists() else []


def append(file: Path, line: str) -> None:
    """Say it for good."""
    with file.open("a") as open_file:
        open_file.write(line + "\n")


def main(job: str, folder: Path) -> int:
    """Life after life, until one ends by itself."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    while True:
        child = os.fork()
        if not child:
            with Life(job, folder) as life:
                life.live()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], Path(sys.argv[2])))
