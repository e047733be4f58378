"""The four tasks of a topology's DAG. Each finds its batch in the ledger by the run, never in XCom (R2)."""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

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
from txbatch.orchestration.waiting import Waiting

if TYPE_CHECKING:
    from airflow.sdk import Context

    from txbatch.finish import Finished
    from txbatch.job_file import Job
    from txbatch.steps import Steps
    from txbatch.storage.staging import AttemptFolder

log = logging.getLogger(__name__)


class TransactionOperator(BaseOperator):
    """A task of a topology's DAG. It may wait deferred, holding no worker slot, until a deadline."""

    job: Job

    def __init__(self, *, job: Job, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.job = job

    def execute(self, context: Context, event: Any = None, deadlines: dict[str, str] | None = None) -> Any:
        """Do the step; also what a wait comes back to, with the deadlines of this try's waits."""
        with failing_as_airflow():
            run = run_of(self.job.topology, context)
            return self.step(open_steps(self.job), run, Waiting(self.job.topology, run, context, deadlines or {}))

    @abstractmethod
    def step(self, steps: Steps, run: Run, waiting: Waiting) -> Any:
        """What this task does for the run."""

    def own_batch(self, steps: Steps, run: Run, waiting: Waiting) -> Batch:
        """The run's batch, planned if need be: also when it was aborted meanwhile."""
        found = steps.initialize_transaction(run)
        if isinstance(found, Batch):
            return found
        self.not_now(found, steps, waiting)

    def not_now(self, why: Wait | NothingNew, steps: Steps, waiting: Waiting) -> NoReturn:
        """Skip when there is nothing new; wait for an interval whose source is not ready (R4), and for another run (R6)."""
        if isinstance(why, Wait):
            own = steps.ledger.head(self.job.topology.name, waiting.run).own
            if own is None:
                steps.ledger.note_wait(why.batch, waiting.run)
            waiting.for_batch(why.batch, own)
        if waiting.run.interval:
            waiting.for_source()
        self.skip("nothing new")

    def skip(self, why: str) -> NoReturn:
        """End the run here, and say why in the log."""
        log.info("%s: %s", self.job.topology.name, why)
        raise AirflowSkipException(why)


class InitializeTransactionOperator(TransactionOperator):
    """Finds or plans the run's batch (R1..R4), without Spark.

    Skips the run when there is nothing new, and when its batch is committed already: nothing is emitted twice, no
    second asset event is sent.
    """

    def step(self, steps: Steps, run: Run, waiting: Waiting) -> dict[str, Any]:
        batch = self.own_batch(steps, run, waiting)
        if batch.succeeded:
            self.skip(f"already committed as txid {batch.txid}; nothing is changed")
        return {"topology": batch.topology, "txid": batch.txid}


class EmitBatchOperator(TransactionOperator, SparkSubmitOperator):
    """Submits the job for a new attempt of the run's batch: each try of this task is an attempt of its own (R5)."""

    def __init__(self, *, job: Job, conn_id: str = SPARK_CONN_ID, **kwargs: Any) -> None:
        name = job.topology.name
        super().__init__(job=job, application=str(job.path), conn_id=conn_id, name=name, durable=False, **kwargs)

    def step(self, steps: Steps, run: Run, waiting: Waiting) -> Any:
        batch = self.own_batch(steps, run, waiting)
        if batch.status is BatchStatus.COMMITTED:
            log.info("%s: already committed as txid %s; nothing is emitted", batch.topology, batch.txid)
            return
        try:
            emitted = steps.emit_batch(batch, run, self.submit)
        except LeaseHeld:
            self.not_now(Wait(steps.ledger.batch(batch.topology, batch.txid)), steps, waiting)
        log.info("%s: txid %s is %s with attempt %s", emitted.topology, emitted.txid, emitted.status, emitted.attempt)

    def submit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        """Run the job on an attempt's folder, through Airflow's hook."""
        from txbatch.submission import spark_environment, submission

        master = spark_master(self._conn_id)
        what = submission(self.job, assignment, folder.uri, load_settings().home, local=master.startswith("local"))
        given = self.conf or {}
        self.name, self.application_args, self.py_files = what.name, list(what.arguments), what.py_files
        self.conf = {**what.conf, **given}
        self._hook = SubmitHook.of(self._get_hook())
        self.conf = given  # a commit may submit several
        try:
            self._hook.submit(
                what.application, env={**spark_environment(), **what.environment, **(self.env_vars or {})}
            )
        except Exception as error:
            raise TransientError(f"{what.name}: {error}") from error


class CommitOperator(EmitBatchOperator):
    """Waits for the batch's turn, then applies it in one PostgreSQL transaction (R6..R10).

    It has the arguments of EmitBatchOperator, as it submits too: another batch, when its own does not continue what is
    committed, and one that nobody looks after any more, when that is in its way (see `txbatch.finish`).
    """

    def step(self, steps: Steps, run: Run, waiting: Waiting) -> dict[str, Any]:
        from txbatch.finish import finish

        found = finish(steps, run, self.submit)
        if isinstance(found, Wait | NothingNew):
            self.not_now(found, steps, waiting)
        return _told(found)


class SuccessOperator(TransactionOperator):
    """Runs once the commit is durable: cleans staging, and sends the topology's asset event with the txid (R8).

    A batch whose event has been sent skips instead. The event is a hint: should this task die between noting and
    finishing, it is not sent; the ledger is the truth. `txids` also names batches that this run adopted on its way.
    """

    def step(self, steps: Steps, run: Run, waiting: Waiting) -> None:
        batch = steps.batch_of(run)
        if not steps.success(batch):
            self.skip(f"already committed as txid {batch.txid}; nothing is changed")
        context = waiting.context
        adopted = (context["ti"].xcom_pull(task_ids="commit") or {}).get("adopted", [])
        for asset in self.outlets:
            extra = context["outlet_events"][asset].extra
            extra.update({"topology": batch.topology, "txid": batch.txid, "txids": [*adopted, batch.txid]})


def _told(finished: Finished) -> dict[str, Any]:
    batch = finished.batch
    if not finished.applied:
        log.info("%s: already committed as txid %s", batch.topology, batch.txid)
    return {
        "topology": batch.topology,
        "txid": batch.txid,
        "applied": finished.applied,
        "adopted": list(finished.adopted),
    }
