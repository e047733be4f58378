"""The batches of a year, one by one or many by one job, in a process that is killed at every tenth, and begins again.

Each life is forked from this program, which has only imported. What a life must know of those before it stands in the
ledger; but for which days are done, how many attempts there were, and who was killed where, in files of the folder.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from datetime import datetime
from multiprocessing.connection import Client
from pathlib import Path
from random import Random

from txbatch import settings
from txbatch.core.batch.transaction import Assignment, Batch, BatchStatus, Interval, Run
from txbatch.core.errors import TransientError
from txbatch.launch.job_file import load_job
from txbatch.run.runner import Runner
from txbatch.storage.staging import AttemptFolder
from txbatch.wiring import open_steps

EMITTING = ["initialize.planned", "emit.attempt_started", "emit.manifest_written", "emit.recorded"]
COMMITTING = ["commit.loaded", "commit.before_commit", "commit.committed", "success.cleaned"]


class Spark:
    """The one session, as an application: attempts go to it over a socket."""

    killed = False

    def __init__(self, folder: Path) -> None:
        self.folder, self.socket = folder, Client(str(folder / "socket"))

    def emit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        """Run the job on an attempt's folder."""
        self.emit_bulk([(folder, assignment)])

    def emit_bulk(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        """Run it once for several attempts."""
        self.begin(attempts)
        self.wait()

    def start(self, *_: object) -> None:
        """It runs."""

    def begin(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        """Let that begin, and go on."""
        append(self.folder / "attempts", *(str(assignment.attempt) for _, assignment in attempts))
        self.socket.send([folder.uri for folder, _ in attempts])

    def wait(self) -> None:
        """Until it is done."""
        application, error = self.socket.recv()
        append(self.folder / "applications", application)
        if error:
            raise TransientError(error)

    def let_end(self) -> None:
        """It goes on."""

    def close(self) -> None:
        """Leave it to the next life."""


class Life:
    """One process: from what the one before it was killed in, until it is killed itself."""

    def __init__(self, job: str, folder: Path, seed: int) -> None:
        self.steps, self.folder, self.seed = open_steps(load_job(job), settings.resolve()), folder, seed
        self.spark = Spark(folder)
        self.days = lines(folder / "days")

    def one_by_one(self) -> None:
        """All days that are not done yet; every tenth attempt dies, once, at a point that the seed chooses."""
        done = set(lines(self.folder / "done"))
        for day in self.days:
            if day not in done:
                attempt = 1 + len(lines(self.folder / "attempts"))
                points = EMITTING + COMMITTING
                self.arm(*([f"{attempt}-{self.chosen(attempt, points)}"] if attempt % 10 == 0 else []))
                self.finish(interval(day))
                append(self.folder / "done", day)

    def finish(self, day: Interval) -> None:
        """A day's batch through what is left of its steps."""
        run = Run(f"year:{day.start}", interval=day)
        batch = self.steps.initialize_transaction(run)
        assert isinstance(batch, Batch), batch
        if batch.status is BatchStatus.PLANNED:
            batch = self.steps.emit_batch(batch, run, self.spark.emit)
        self.steps.commit(batch)
        self.steps.success(batch)

    def together(self) -> None:
        """All days, by as few jobs as may be. A life dies at its tenth commit; every third one before, where it emits."""
        number = len(list((self.folder / "killed").iterdir()))
        emitting = f"{number}-{self.chosen(number, EMITTING)}"
        committing = f"{number}-{self.chosen(number, COMMITTING)}"
        self.arm(*([emitting] if number % 3 == 0 else []))
        committed = len(lines(self.folder / "done"))
        for batch in Runner(self.steps, self.spark).run_each(map(interval, self.days)):
            if str(batch.txid) not in lines(self.folder / "done"):
                append(self.folder / "done", str(batch.txid))
            if len(lines(self.folder / "done")) == committed + 9:
                self.arm(committing)

    def chosen(self, number: int, points: list[str]) -> str:
        """A point."""
        return Random(f"{self.seed} {number}").choice(points)

    def arm(self, *deaths: str) -> None:
        """Let this life end there."""
        armed = [f"{death.partition('-')[2]}=kill:{self.folder / 'killed' / death}" for death in deaths]
        os.environ["TXBATCH_FAILPOINTS"] = ",".join(armed)


def interval(day: str) -> Interval:
    """A line of the file of days."""
    start, end = map(datetime.fromisoformat, day.split("/"))
    return Interval(start, end)


def lines(file: Path) -> list[str]:
    """What the file says; nothing when it is not there."""
    return file.read_text().splitlines() if file.exists() else []


def append(file: Path, *said: str) -> None:
    """Say it for good."""
    with file.open("a") as open_file:
        open_file.write("".join(line + "\n" for line in said))


def main(job: str, folder: Path, seed: int, how: str) -> int:
    """Life after life, until one ends by itself."""
    while True:
        child = os.fork()
        if not child:
            life = Life(job, folder, seed)
            getattr(life, how)()
            life.spark.socket.send([])
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
