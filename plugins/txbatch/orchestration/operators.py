"""The four tasks of a topology's DAG. Each finds its batch in the ledger by the run, never in XCom (R2)."""

from __future__ import annotations

import logging
from abc import abstractmethod
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException, TaskDeferred

from txbatch.core.coordinator import NothingNew
from txbatch.core.errors import LeaseHeld, TransientError
from txbatch.core.protocol import Wait
from txbatch.core.transaction import Assignment, Batch, BatchStatus, Run
from txbatch.orchestration.airflow import (
    SPARK_CONN_ID,
    failing_as_airflow,
    load_settings,
    open_steps,
    run_of,
    spark_master,
)
from txbatch.orchestration.submit_hook import SubmitHook
from txbatch.orchestration.trigger import TurnTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from txbatch.job_file import Job
    from txbatch.steps import Steps
    from txbatch.storage.staging import AttemptFolder

log = logging.getLogger(__name__)
TURN_TIMEOUT_PARAM = "turn_timeout_minutes"


class TransactionOperator(BaseOperator):
    """A task of a topology's DAG. It may wait for another txid deferred, holding no worker slot."""

    job: Job

    def __init__(self, *, job: Job, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.job = job

    def execute(self, context: Context, event: Any = None) -> Any:
        """Do the step; also what a wait comes back to."""
        with failing_as_airflow():
            return self.step(open_steps(self.job), run_of(self.job.topology, context), context)

    @abstractmethod
    def step(self, steps: Steps, run: Run, context: Context) -> Any:
        """What this task does for the run."""

    def own_batch(self, steps: Steps, run: Run, context: Context) -> Batch:
        """The run's batch, planned if need be: also when it was aborted meanwhile.

        Skips when there is nothing new, waits while as many batches as allowed are in flight.
        """
        found = steps.initialize_transaction(run)
        if isinstance(found, NothingNew):
            if run.interval:
                raise TransientError(f"{self.job.topology.name}: the source is not ready for {run.interval}; try again")
            self.skip("nothing new")
        if isinstance(found, Wait):
            log.info("%s: waits for txid %s of %s", found.batch.topology, found.batch.txid, found.batch.lease_run)
            steps.ledger.note_wait(found.batch, run)
            self.wait_for(found.batch.txid, context)
        return found

    def wait_for(self, txid: int, context: Context) -> NoReturn:
        """Come back to `execute` when this txid is final or abandoned; the task fails after the run's turn timeout."""
        trigger = TurnTrigger(topology=self.job.topology.name, txid=txid)
        timeout = timedelta(minutes=context["params"][TURN_TIMEOUT_PARAM])
        raise TaskDeferred(trigger=trigger, method_name="execute", timeout=timeout)

    def skip(self, why: str) -> NoReturn:
        """End the run here, and say why in the log."""
        log.info("%s: %s", self.job.topology.name, why)
        raise AirflowSkipException(why)


class InitializeTransactionOperator(TransactionOperator):
    """Finds or plans the run's batch (R1..R4), without Spark.

    Skips the run when there is nothing new, and when its batch is committed already: nothing is emitted twice, no
    second asset event is sent.
    """

    def step(self, steps: Steps, run: Run, context: Context) -> dict[str, Any]:
        batch = self.own_batch(steps, run, context)
        if batch.succeeded:
            self.skip(f"already committed as txid {batch.txid}; nothing is changed")
        return {"topology": batch.topology, "txid": batch.txid}


class EmitBatchOperator(TransactionOperator, SparkSubmitOperator):
    """Submits the job for a new attempt of the run's batch: each try of this task is an attempt of its own (R5)."""

    def __init__(self, *, job: Job, conn_id: str = SPARK_CONN_ID, **kwargs: Any) -> None:
        name = job.topology.name
        super().__init__(job=job, application=str(job.path), conn_id=conn_id, name=name, durable=False, **kwargs)

    def step(self, steps: Steps, run: Run, context: Context) -> None:
        batch = self.own_batch(steps, run, context)
        if batch.status is BatchStatus.COMMITTED:
            log.info("%s: already committed as txid %s; nothing is emitted", batch.topology, batch.txid)
            return
        try:
            emitted = steps.emit_batch(batch, run, self._submit)
        except LeaseHeld as error:
            log.info("%s", error)
            self.wait_for(batch.txid, context)
        log.info("%s: txid %s is %s with attempt %s", emitted.topology, emitted.txid, emitted.status, emitted.attempt)

    def _submit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        from txbatch.submission import spark_environment, submission

        master = spark_master(self._conn_id)
        what = submission(self.job, assignment, folder.uri, load_settings().home, local=master.startswith("local"))
        self.name, self.application_args, self.py_files = what.name, list(what.arguments), what.py_files
        self.conf = {**what.conf, **(self.conf or {})}
        self._hook = SubmitHook.of(self._get_hook())
        try:
            self._hook.submit(
                what.application, env={**spark_environment(), **what.environment, **(self.env_vars or {})}
            )
        except Exception as error:
            raise TransientError(f"{what.name}: {error}") from error


class CommitOperator(TransactionOperator):
    """Waits for the batch's turn, then applies it in one PostgreSQL transaction (R6..R10)."""

    def step(self, steps: Steps, run: Run, context: Context) -> dict[str, Any]:
        batch = steps.batch_of(run)
        before = steps.waits_for(batch)
        if before is not None:
            log.info("%s: txid %s waits for txid %s", batch.topology, batch.txid, before)
            self.wait_for(before, context)
        return {"topology": batch.topology, "txid": batch.txid, "applied": steps.commit(batch, run).applied}


class SuccessOperator(TransactionOperator):
    """Runs once the commit is durable: cleans staging, and sends the topology's asset event with the txid (R8).

    A batch whose event has been sent skips instead. The event is a hint: should this task die between noting and
    finishing, it is not sent; the ledger is the truth.
    """

    def step(self, steps: Steps, run: Run, context: Context) -> None:
        batch = steps.batch_of(run)
        if not steps.success(batch):
            self.skip(f"already committed as txid {batch.txid}; nothing is changed")
        for asset in self.outlets:
            context["outlet_events"][asset].extra = {"topology": batch.topology, "txid": batch.txid}
