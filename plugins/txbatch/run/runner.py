"""`txbatch run`: the four steps one after the other, in this process, without Airflow."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self
from uuid import uuid4

from txbatch.core.coordinator import NothingNew
from txbatch.core.errors import LeaseHeld, NotItsTurn
from txbatch.core.protocol import Wait
from txbatch.core.transaction import Assignment, Batch, BatchStatus, Interval, Metadata, Run
from txbatch.launch.application import Application
from txbatch.launch.job_file import Job
from txbatch.launch.submission import LOCAL_MASTER, SparkSubmit
from txbatch.postgres import run_lock
from txbatch.run.advance import bring_to_commit
from txbatch.run.steps import Steps
from txbatch.settings import Settings
from txbatch.storage.staging import AttemptFolder

log = logging.getLogger(__name__)
RUN_PREFIX = "cli:"


class Runner:
    """Runs batches of one job, all in one Spark application, which ends with the `with` block."""

    def __init__(self, job: Job, settings: Settings, master: str = LOCAL_MASTER) -> None:
        self.job = job
        self.steps = Steps.open(job, settings)
        self.spark = Application(
            job, settings.home, partial(SparkSubmit, master=master), local=master.startswith("local")
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.spark.close()

    def run(
        self,
        run_id: str | None = None,
        interval: Interval | None = None,
        parameters: Metadata | None = None,
        *,
        until_idle: bool = False,
    ) -> Iterator[Batch]:
        """Yield each batch as it is committed: first what an earlier call left unfinished, unless a run_id is given.

        Nothing is yielded when there is nothing new. NotItsTurn while another live run is in the way.
        """
        if run_id is None:
            yield from self._unfinished()
        while True:
            name = f"{RUN_PREFIX}{uuid4().hex[:12] if run_id is None else run_id}"
            with self._held(Run(name, interval=interval, parameters=parameters or {})) as run:
                done = self._finish(run)
            yield from done
            if not done or not until_idle or run_id is not None or interval is not None:
                return

    def run_each(self, intervals: Iterable[Interval], parameters: Metadata | None = None) -> Iterator[Batch]:
        """The batch of each interval, in order, also of those that are committed already; as `run` does."""
        for interval in intervals:
            yield from self.run(interval=interval, parameters=parameters)

    def _unfinished(self) -> Iterator[Batch]:
        ledger, name, txid = self.steps.ledger, self.job.topology.name, 0
        ledger.register(self.job.topology, self.job.name)
        while found := run_lock.oldest_unfinished(ledger.engine, name, txid):
            txid = found[0]
            with self._held(found[1]) as run:
                log.info("%s: finishing what %s began", name, run.name)
                batch = ledger.batch(name, txid)
                committed = batch.status is BatchStatus.COMMITTED
                done = [self._succeeded(batch)] if committed else self._finish(run)
            yield from done

    @contextmanager
    def _held(self, run: Run) -> Iterator[Run]:
        with run_lock.hold(self.steps.ledger.engine, self.job.topology.name, run.name) as held:
            if not held:
                raise LeaseHeld(f"{self.job.topology.name}: {run.name} is running; wait until it ends")
            yield run

    def _finish(self, run: Run) -> list[Batch]:
        """What the run adopted and its own batch, through all steps; none for nothing new."""
        found = bring_to_commit(self.steps, run, self.submit)
        if isinstance(found, NothingNew):
            return []
        if isinstance(found, Wait):
            raise NotItsTurn(
                f"{self.job.topology.name}: txid {found.batch.txid} of {found.batch.lease_run} is in flight; "
                f"try again when it is committed, see `txbatch batches {self.job.topology.name}`"
            )
        adopted = [self.steps.ledger.batch(self.job.topology.name, txid) for txid in found.adopted]
        return [*adopted, self._succeeded(found.batch)]

    def _succeeded(self, batch: Batch) -> Batch:
        self.steps.success(batch)
        return replace(batch, succeeded=True)

    def submit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        """Run the job on an attempt's folder."""
        self.spark.emit(folder, assignment)
