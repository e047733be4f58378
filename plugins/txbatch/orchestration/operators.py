"""The four tasks of a topology's DAG. Each task finds its batch in the ledger by the run, never in XCom (R2)."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, assert_never

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import BaseOperator

from txbatch.core.batch.transaction import Batch, BatchKind, BatchStatus, Interval, Run
from txbatch.core.errors import IntervalNotOver, TxbatchError
from txbatch.core.protocol import bulk
from txbatch.core.protocol.coordinator import NothingNew
from txbatch.core.protocol.decisions import Wait
from txbatch.launch.job_file import check_emission
from txbatch.orchestration import catching_up, grid, looking_back, restating, result
from txbatch.orchestration.airflow import (
    SPARK_CONN_ID,
    open_steps,
    run_of,
)
from txbatch.orchestration.failing import marks
from txbatch.orchestration.failing.for_airflow import failing_as_airflow
from txbatch.orchestration.failing.outages import outages_waited_for, source_met
from txbatch.orchestration.form import fields, giving_up, planning_first
from txbatch.orchestration.form.fields import Asked
from txbatch.orchestration.schedules import check_scheduled, cut_in, timetable_of
from txbatch.orchestration.submitting import NOT_RESUMED, SubmittingOperator
from txbatch.orchestration.waiting import Waiting
from txbatch.run.replaced import counting, in_place_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from txbatch.launch.application import Application
    from txbatch.launch.job_file import Job
    from txbatch.run.advance import Finished
    from txbatch.run.progress import Progress
    from txbatch.run.steps import Steps

log = logging.getLogger(__name__)


class TransactionOperator(BaseOperator):
    """A task of a topology's DAG. If the task must wait, Airflow defers the task, without a worker slot, until a deadline."""

    job: Job
    # Of the first task: the grid of the DAG, if the schedule is not, and how far back a run by the grid reaches.
    intervals: Any = None
    reaches_back: timedelta | None = None

    def __init__(self, *, job: Job, own: Collection[str] = (), **kwargs: Any) -> None:
        """`own` has the names of parameters of the DAG file."""
        super().__init__(**kwargs)
        self.job, self.own = job, own

    def execute(self, context: Context, event: Any = None, deadlines: dict[str, str] | None = None) -> Any:
        """Do the step. After a wait, Airflow calls again, with the deadlines of this try's waits."""
        topology, of_waits = self.job.topology, deadlines or {}
        with (
            failing_as_airflow(context, topology=topology.name, job=self.job.name),
            outages_waited_for(topology.name, context, event, of_waits),
        ):
            asked = fields.asked(topology, self.own, context)
            steps, run, step = open_steps(self.job, cut_in(context)), fields.run_of_form(context), self.step
            match asked:
                case Asked.GIVE_UP:
                    step = self.give_up
                case Asked.PLAN:
                    step = self.plan_only
                case Asked.CATCH_UP:
                    run, step = catching_up.run(topology, context), self.catch_up
                case Asked.RESTATE:
                    run = restating.runs(steps, context)[0]
                case Asked.COUNT:
                    run = run_of(topology, context)
                    catching_up.check_interval(topology, run)
                case _:
                    assert_never(asked)
            return step(steps, run, Waiting(topology, run, context, of_waits))

    @abstractmethod
    def step(self, steps: Steps, run: Run, waiting: Waiting) -> Any:
        """Do this task's part of the run, and return the value for XCom."""

    @abstractmethod
    def catch_up(self, steps: Steps, run: Run, waiting: Waiting) -> Any:
        """Do this task's part of a run that catches up, and return the value for XCom."""

    def plan_only(self, steps: Steps, run: Run, waiting: Waiting) -> Any:
        """Do this task's part of a run that plans first, and return the value for XCom. Most tasks have no part."""
        self.skip("the run plans first: nothing is stored", waiting, tell=False)

    def give_up(self, steps: Steps, run: Run, waiting: Waiting) -> Any:
        """Do this task's part of a run that gives a batch up. Most tasks have no part."""
        self.skip("the run gives a batch up: nothing is counted", waiting, tell=False)

    def check_plan(self, steps: Steps, run: Run, waiting: Waiting) -> None:
        """Refuse to plan an interval outside of the DAG's schedule, in each task: a mark by hand may pass over the first."""
        if run.interval is not None and steps.would_plan(run):
            check_scheduled(run.interval, waiting.context["dag"])
            self.wait_for_end(steps, run.interval, waiting)

    def wait_for_end(self, steps: Steps, interval: Interval, waiting: Waiting) -> None:
        """Defer the task if the partition of the run is not over by the ledger's clock (R2)."""
        if not grid.waits_for_end(interval, waiting.context):
            return
        try:
            steps.ledger.check_interval(self.job.topology.name, interval)
        except IntervalNotOver:
            waiting.for_end(interval)

    def own_batch(self, steps: Steps, run: Run, waiting: Waiting) -> Batch:
        """Find or plan the run's batch; after an abort, plan again. Do not return while the run must wait."""
        self.check_plan(steps, run, waiting)
        found = steps.initialize_transaction(run)
        if isinstance(found, Batch):
            return found
        self.not_now(found, steps, waiting)

    def not_now(self, why: Wait | NothingNew, steps: Steps, waiting: Waiting) -> NoReturn:
        """Skip if nothing is new. Wait if the source of an interval is not ready (R4), or another run is in the way (R6)."""
        if isinstance(why, Wait):
            log.info("%s: txid %s is waited for: %s", why.batch.topology, why.batch.txid, why.why)
            own = steps.ledger.head(self.job.topology.name, waiting.run).own
            if own is None or own.txid == why.batch.txid:  # another run works on this run's batch
                steps.ledger.note_wait(why.batch, waiting.run)
            waiting.for_batch(why.batch, own)
        if waiting.run.interval:
            waiting.for_source()
        self.skip("nothing new", waiting)

    def skip(self, why: str, waiting: Waiting, note: str | None = None, *, tell: bool = True) -> NoReturn:
        """Skip the rest of the run, and give the reason in the log and, with `tell`, in the run's note."""
        log.info("%s: %s", self.job.topology.name, why)
        if tell:
            result.tell(waiting.context, note or why)
        raise AirflowSkipException(why)

    def counted(self, steps: Steps, batch: Batch, context: Context) -> str:
        """Describe the run's committed batch, and a restate in the batch's place; only the txid if the database fails."""
        from txbatch.wiring import reader_beside

        try:
            reader = reader_beside(steps)
            if batch.kind is BatchKind.RESTATE:
                return result.restated(reader.batches_of_run(batch.topology, context["dag_run"].run_id))
            row, *restates = reader.batches_by_txid(batch.topology, sorted({batch.txid, counting(steps.ledger, batch)}))
            holes = "".join(f"; {result.restated([each])}" for each in restates) + catching_up.holes(steps, [row])
        except TxbatchError as error:
            log.warning("%s", error)
            return f"txid {batch.txid}"
        return result.committed(row, result.zone_of(timetable_of(context["dag"]))) + holes

    def since(self, steps: Steps, batch: Batch, context: Context) -> str:
        """Describe changes in a committed batch's source since its plan, and the command to count again (R15)."""
        from txbatch.wiring import already_committed, differs_from_plan

        if batch.kind is not BatchKind.RESTATE:
            return already_committed(steps, batch)
        again = [steps.batch_of(run) for run in restating.runs(steps, context)]
        return "".join(differs_from_plan(steps.job.topology, each) for each in again)


class InitializeTransactionOperator(TransactionOperator):
    """Finds or plans the run's batch (R1..R4), without Spark.

    Skips the run if nothing is new, or the run's batch is committed: no batch is emitted twice, and no second asset event
    is sent.
    """

    def step(self, steps: Steps, run: Run, waiting: Waiting) -> dict[str, Any]:
        check_emission(self.job)
        for again in restating.runs(steps, waiting.context):
            steps.check_restate(again)
        batch = self.own_batch(steps, run, waiting)
        if batch.succeeded:
            told = f"nothing is changed{self.since(steps, batch, waiting.context)}"
            line = f"already committed as txid {batch.txid}{in_place_of(steps.ledger, batch)}; {told}"
            counted = self.counted(steps, batch, waiting.context)
            restated = batch.kind is BatchKind.RESTATE
            self.skip(line, waiting, f"already committed: {counted}; {told}" if restated else f"{line} | {counted}")
        return {"topology": batch.topology, "txid": batch.txid}

    def give_up(self, steps: Steps, run: Run, waiting: Waiting) -> NoReturn:
        """Give the batch up, and skip the rest of the run."""
        self.skip(giving_up.run(steps, waiting.context), waiting)

    def plan_only(self, steps: Steps, run: Run, waiting: Waiting) -> None:
        """Refuse before Spark starts, as far as possible."""
        check_emission(self.job)
        planning_first.restates(steps, waiting.context)

    def catch_up(self, steps: Steps, run: Run, waiting: Waiting) -> None:
        check_emission(self.job)
        asked = catching_up.asked(steps, run, waiting.context)
        steps.register()
        if asked.nothing:
            self.skip(str(asked), waiting)
        log.info("%s: catches up %s", self.job.topology.name, asked)


class EmitBatchOperator(TransactionOperator, SubmittingOperator):
    """Submits the job for a new attempt of the run's batch. Each try of this task is a new attempt (R5).

    With `coalesce`, the Spark application also emits batches of other waiting runs (`run.shared_emission`). On its first
    try, a task defers while another run's application works, then uses the manifest staged by the application.
    """

    def __init__(self, *, job: Job, conn_id: str = SPARK_CONN_ID, coalesce: bool = False, **kwargs: Any) -> None:
        name = job.topology.name
        if conf := kwargs.get("conf"):
            from txbatch.spark import site_settings  # imported here: its list is read only if `conf` is given

            site_settings.check(conf)
        super().__init__(job=job, application=str(job.path), conn_id=conn_id, name=name, **NOT_RESUMED, **kwargs)
        self.coalesce = coalesce
        self._spark: Application | None = None

    def step(self, steps: Steps, run: Run, waiting: Waiting) -> Any:
        together = self.emit_together(steps, restating.runs(steps, waiting.context)[: bulk.BATCHES_MAX])
        batch = self.own_batch(steps, run, waiting)
        if batch.txid in together:
            self._log_emitted(batch)
        elif batch.status is BatchStatus.COMMITTED:
            log.info("%s: already committed as txid %s; nothing is emitted", batch.topology, batch.txid)
        elif self.coalesce:
            self._emit_coalesced(steps, batch, run, waiting)
        else:
            emitted = steps.emit_or_wait(batch, run, self.submit)
            if isinstance(emitted, Wait):
                self.not_now(emitted, steps, waiting)
            self._log_emitted(emitted)

    def catch_up(self, steps: Steps, run: Run, waiting: Waiting) -> dict[str, Any]:
        """Bring all batches of the run to their commits, and return their txids."""
        from txbatch.run.progress import log_progress, watch
        from txbatch.run.runner import Runner

        def told(now: Progress) -> None:
            log_it(now)
            note_it(now)
            if now.batches > now.found:
                source_met(waiting.deadlines)

        def waits(run: Run, wait: Wait) -> NoReturn:
            self.not_now(wait, steps, replace(waiting, run=run))

        topology, wanted = self.job.topology, catching_up.asked(steps, run, waiting.context)
        asked = wanted.intervals
        note_it = catching_up.noted(steps, run, wanted, partial(result.tell, waiting.context))
        many, application = None if asked is None else len(asked), self._application()
        with (
            Runner(steps, application, waits=waits, succeed=steps.run_success_without_note) as runner,
            log_progress(topology.name, many, lambda: application.stage) as log_it,
        ):
            counted = watch(runner.catch_up(run, asked), many, told, found=runner.found, asked=asked)
            done = [batch.txid for batch in counted]
        if asked and (missing := catching_up.not_ready(steps, run, asked)):
            replace(waiting, run=missing).for_source()
        txids = done or catching_up.committed_by(steps, run)  # a run that only adopted has no batch of its own
        if not txids:
            self.skip(str(wanted) if wanted.nothing else "nothing new", waiting)
        return {"topology": topology.name, "txids": sorted(txids), **looking_back.left_late(topology, runner.told)}

    def plan_only(self, steps: Steps, run: Run, waiting: Waiting) -> None:
        """Count the batches again beside, and note the first line of the plan."""
        from txbatch.wiring import open_emitter

        emitter = open_emitter(steps, self._application())
        result.tell(waiting.context, planning_first.preview(steps, emitter, waiting.context))

    def emit_together(self, steps: Steps, runs: Sequence[Run]) -> set[int]:
        """Plan the batches of several runs, and emit all by one job if possible. Return the txids emitted by the job."""
        if len(runs) < 2 or bulk.reason_against(self.job.topology) is not None or not self._one_application_serves:
            return set()
        from txbatch.run.bulk import emitting, plan_ahead

        planned = plan_ahead(steps, runs, (), len(runs))
        if sum(batch.status is BatchStatus.PLANNED for batch, _ in planned) < 2:
            return set()
        with self._application() as application, emitting(steps, application, planned) as emission:
            pass
        self._spark = None
        before = {batch.txid for batch, _ in planned if batch.status is not BatchStatus.PLANNED}
        return {batch.txid for batch, _ in emission.planned if batch.status is BatchStatus.EMITTED} - before

    def _emit_coalesced(self, steps: Steps, batch: Batch, run: Run, waiting: Waiting) -> None:
        from txbatch.run import shared_emission

        found = shared_emission.emit(steps, batch, run, self._application, first_try=waiting.first_try)
        match found:
            case shared_emission.Emitted(emitted):
                self._log_emitted(emitted)
            case shared_emission.Taken(taken):
                log.info(
                    "%s: txid %s was emitted for this run, with attempt %s", taken.topology, taken.txid, taken.attempt
                )
            case shared_emission.WaitForOthers(own):
                waiting.for_emission(own)
            case Wait():
                self.not_now(found, steps, waiting)
            case _:
                assert_never(found)

    def _log_emitted(self, emitted: Batch) -> None:
        log.info("%s: txid %s is %s with attempt %s", emitted.topology, emitted.txid, emitted.status, emitted.attempt)


class CommitOperator(EmitBatchOperator):
    """Waits for the batch's turn, then applies the batch in one PostgreSQL transaction (R6..R10).

    CommitOperator has the arguments of EmitBatchOperator, because a commit may submit Spark too: a new batch if the run's
    batch no longer continues, or an abandoned batch in the way (see `txbatch.run.advance`). If a run counts several batches
    again, the operator brings all batches after the first through the remaining steps.
    """

    def step(self, steps: Steps, run: Run, waiting: Waiting) -> dict[str, Any]:
        self.check_plan(steps, run, waiting)
        others = [each for each in restating.runs(steps, waiting.context) if each != run]
        found = self._advanced(steps, run, waiting)
        more: list[Finished] = []
        for first in range(0, len(others), bulk.BATCHES_MAX):
            together = others[first : first + bulk.BATCHES_MAX]
            self.emit_together(steps, together)
            more += (self._advanced(steps, each, waiting) for each in together)
        for each in more:
            steps.success(each.batch)
        return result.finished(found, more) | looking_back.after_commit(self, steps, run, found.batch, waiting)

    def plan_only(self, steps: Steps, run: Run, waiting: Waiting) -> None:
        """Commit nothing: the task `emit_batch` has shown the plan."""
        TransactionOperator.plan_only(self, steps, run, waiting)

    def _advanced(self, steps: Steps, run: Run, waiting: Waiting) -> Finished:
        from txbatch.run.advance import Advance

        found = Advance(steps, run, self.submit).to_commit()
        if isinstance(found, Wait | NothingNew):
            self.not_now(found, steps, replace(waiting, run=run))
        return found


class SuccessOperator(TransactionOperator):
    """Runs after a durable commit: cleans staging, and sends the topology's asset event with the txid (R8).

    If the event of a batch was sent before, the task skips. The event is a hint: if the task dies between the note and its
    end, no event is sent; the ledger is the truth. `txids` also names batches adopted by this run.
    """

    def step(self, steps: Steps, run: Run, waiting: Waiting) -> None:
        batch, context = steps.batch_of(run), waiting.context
        # Before the note of success: after the note, a retry would skip, and send no event.
        since = self.since(steps, batch, context) if batch.kind is BatchKind.RESTATE else ""
        asked = restating.runs(steps, context)
        marks.check_committed(steps, asked, context)
        again: list[Any] = [each.restate.position for each in asked if each.restate]
        if not steps.success(batch):
            self.skip(f"already committed as txid {batch.txid}; nothing is changed", waiting)
        line, found = self.counted(steps, batch, context), context["ti"].xcom_pull(task_ids="commit") or {}
        late = looking_back.late_of(steps, batch, context)
        line = looking_back.noted(line + since, late, found.get(looking_back.XCOM_KEY, []))
        log.info("%s: %s", batch.topology, line)
        result.tell(context, line)
        txids = {*found.get("adopted", []), batch.txid, *(row["txid"] for row in late)}
        for asset in self.outlets:
            extra = context["outlet_events"][asset].extra
            extra.update({"topology": batch.topology, "txid": batch.txid, "txids": sorted(txids)})
            extra.update({"restates": again} if again else looking_back.restates(late))

    def catch_up(self, steps: Steps, run: Run, waiting: Waiting) -> None:
        """Note and announce the run's committed batches, unless announced before. The spouts have been notified already."""
        topology, context = self.job.topology.name, waiting.context
        asked = catching_up.asked(steps, run, context)
        marks.check_committed(steps, [replace(run, interval=each) for each in asked.intervals or ()], context)
        rows = catching_up.to_announce(steps, run, asked.intervals or ())
        if not rows:
            self.skip(f"{asked.with_more('already committed, all of it')}; nothing is changed", waiting)
        late = (context["ti"].xcom_pull(task_ids="emit_batch") or {}).get(looking_back.XCOM_KEY, [])
        line = looking_back.noted(catching_up.counted(rows, result.zone_of(timetable_of(context["dag"]))), rows, late)
        line = asked.with_more(line)
        line += catching_up.holes(steps, rows)
        txids = [row["txid"] for row in rows]
        noted = [steps.ledger.success(topology, txid) for txid in txids]
        if not any(noted):
            self.skip(f"already committed as {line}; nothing is changed", waiting)
        log.info("%s: %s", topology, line)
        result.tell(context, line)
        for asset in self.outlets:
            extra = context["outlet_events"][asset].extra
            extra.update({"topology": topology, "txid": txids[-1], "txids": txids})
            extra.update(looking_back.restates(rows))
