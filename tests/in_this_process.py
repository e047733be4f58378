"""The driver in the session of the tests, in the place of a Spark application."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from pyspark.sql import SparkSession

from txbatch.core.batch.transaction import Assignment
from txbatch.core.errors import TransientError
from txbatch.launch.driver import Driver
from txbatch.launch.job_file import Job, load_job
from txbatch.storage.staging import AttemptFolder


class InThisProcess:
    """What a runner takes for a Spark application: the driver, without a process of its own."""

    killed = False
    stage = ""
    session: SparkSession

    def __init__(self, job: Job, *_: object, **__: object) -> None:
        self.driver = Driver(load_job(str(job.path)).topology, job.path, ExitStack())
        self.driver._session = self.session

    def start(self, *_: object) -> None:
        """It runs."""

    def emit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        if not self.driver.emit(folder):
            raise TransientError("it failed; Spark's output above says why")

    def emit_bulk(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        self.driver.emit_bulk([folder for folder, _ in attempts])

    def begin(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        self.emit_bulk(attempts)

    def wait(self) -> None:
        """It is done."""

    def let_end(self) -> None:
        """It goes on."""

    def close(self) -> None:
        """The session is that of all tests."""
