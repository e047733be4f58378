"""`txbatch run`: do the four steps one after the other, in this process, without Airflow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count, repeat
from types import TracebackType
from typing import NoReturn, Self

from txbatch.core.batch.staging import AttemptFolder
from txbatch.core.batch.transaction import Assignment, Batch, BatchStatus, Interval, Metadata, Restate, Run
from txbatch.core.errors import NotItsTurn
from txbatch.core.protocol import bulk
from txbatch.core.protocol.coordinator import NothingNew
from txbatch.core.protocol.decisions import Wait
from txbatch.core.protocol.lookback import Counting, LatePosition
from txbatch.core.protocol.ports import Application, Job
from txbatch.core.protocol.restate import how_to_restate
from txbatch.core.stored_json import digest
from txbatch.core.text import list_txids
from txbatch.core.topology.topology import Topology
from txbatch.run import run_names
from txbatch.run.advance import Advance
from txbatch.run.bulk import emit_ahead, plan_ahead
from txbatch.run.look_back import LookBack
from txbatch.run.pipeline import Pipeline, Succeed
from txbatch.run.run_names import call_of, hold
from txbatch.run.steps import Steps
from txbatch.run.unfinished import UnfinishedBatches

log = logging.getLogger(__name__)
# Returns the files that differ from the plan of a batch not yet committed.
Differs = Callable[[Topology, Batch], Sequence[Mapping[str, str]]]
# Raises the error of a run while another live run is in the way.
Waits = Callable[[Run, Wait], NoReturn]


class Runner:
    """Runs batches of one job in one application. The application ends with the `with` block."""

    def __init__(
        self,
        steps: Steps,
        application: Application,
        differs: Differs = lambda topology, batch: (),
        waits: Waits | None = None,
        succeed: Succeed | None = None,
    ) -> None:
        self.steps, self.application, self.differs = steps, application, differs
        self.waits, self.succeed = waits or _not_its_turn, succeed or steps.succeeded
        self.found = set[int]()  # txids of yielded batches committed before
        self.told = list[LatePosition]()  # positions with late records, left as counted
        self.behind = 0  # number of batches planned behind the last yielded batch, to be emitted by one job

    @property
    def job(self) -> Job:
        """The job whose batches are run."""
        return self.steps.job

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.application.close()

    def run(
        self,
        run_id: str | None = None,
        interval: Interval | None = None,
        parameters: Metadata | None = None,
        *,
        until_idle: bool = False,
    ) -> Iterator[Batch]:
        """Yield each batch after its commit. Without a run_id, first finish the batches of earlier calls.

        Yield nothing if nothing is new. Raise NotItsTurn while another live run is in the way.
        """
        run = run_names.new_run(parameters) if run_id is None else run_names.named(run_id, parameters)
        if run_id is None and interval is None and until_idle:
            yield from chain(self._unfinished(), self._each(run, repeat(None), until_idle=True))
            return
        before = self._unfinished() if run_id is None else ()
        yield from self._looking_back(run, chain(before, self._alone([replace(run, interval=interval)])))

    def restate(
        self,
        txids: Iterable[int],
        why: str,
        by: str | None = None,
        *,
        accept_missing: bool = False,
        skipped: bool = False,
        run_id: str | None = None,
    ) -> Iterator[Batch]:
        """Count committed batches again, in their places (R17). Yield each batch after its commit.

        Without a run_id, first finish the batches of earlier calls. The txid of a restate means its position. If a call was
        killed, a call with the same txids and reason goes on. Raise TerminalError, before any change, if a batch cannot be
        counted again.
        """
        asked = [Restate(each, why, by, accept_missing, skipped) for each in self._positions(txids)]
        runs = self._unfinished_call(asked) if run_id is None else run_names.restates(run_id, asked)
        for run in runs:
            self.steps.check_restate(run)
        if run_id is None:
            yield from self._unfinished()
        if run_id is None and len(runs) > 1 and bulk.reason_against(self.job.topology) is None:
            yield from self._in_trains(Run(call_of(runs[0].name)), iter(runs))
        else:
            yield from self._alone(runs)

    def _positions(self, txids: Iterable[int]) -> list[int]:
        """Return the sorted positions of txids, without duplicates."""
        self.steps.register()
        name, ledger = self.job.topology.name, self.steps.ledger
        return sorted({ledger.batch(name, txid).position for txid in txids})

    def _unfinished_call(self, asked: Sequence[Restate]) -> list[Run]:
        """Return the runs of the first unfinished call for the same restates: an earlier killed call, or a new call."""
        topology, ledger = self.job.topology.name, self.steps.ledger
        for number in count(1):
            call = f"restate-{digest([[each.position, each.why] for each in asked])[:12]}-{number}"
            runs = run_names.restates(call, asked, each_by_name=len(asked) > 1)
            done = [head.own for head in ledger.heads(topology, runs)]
            if not done or not all(batch is not None and batch.succeeded for batch in done):
                return runs
            counted = list_txids(batch.txid for batch in done if batch)
            log.warning("%s: the same was asked before, and counted as %s; it is counted again", topology, counted)
        raise AssertionError("numbers do not end")

    def run_each(self, intervals: Iterable[Interval], parameters: Metadata | None = None) -> Iterator[Batch]:
        """Yield the batch of each interval, in order, like `run`. Batches committed before are yielded too."""
        run = run_names.new_run(parameters)
        yield from self._looking_back(run, chain(self._unfinished(), self._each(run, intervals)))

    def catch_up(self, run: Run, intervals: Iterable[Interval] | None) -> Iterator[Batch]:
        """Yield the batches of one run: the batch of each interval, in order; None: until nothing is new.

        To the ledger these are runs named after this run. A later call for the same run finds the same runs again.
        """
        self.steps.register()
        batches = self._each(run, repeat(None) if intervals is None else intervals, until_idle=intervals is None)
        yield from self._looking_back(run, batches)

    def _looking_back(self, call: Run, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield batches after the commits, then the restates of positions with late records within the lookback (R17)."""
        counting = Counting()
        for batch in batches:
            counting.add(batch)
            yield batch
        look_back = LookBack(self.steps, call)
        due = look_back.due(counting) if counting.txids else []
        self._emit_together([look_back.run_of(late) for late in due])
        for late in due:
            yield from look_back.again(late, self._finish_held)
        self.told += look_back.told

    def _emit_together(self, runs: Sequence[Run]) -> None:
        """Emit the batches of several runs by one job, if possible. After a failure, each run emits for itself."""
        if len(runs) > 1 and bulk.reason_against(self.job.topology) is None:
            some = runs[: bulk.BATCHES_MAX]
            emit_ahead(self.steps, self.application, plan_ahead(self.steps, some, (), len(some)))

    def _finish_held(self, run: Run) -> list[Batch]:
        with hold(self.steps.locks, self.job.topology.name, run):
            return self._finish(run)

    def _each(self, call: Run, intervals: Iterable[Interval | None], *, until_idle: bool = False) -> Iterator[Batch]:
        """Yield the batch of each interval, or of None, by runs named after the call. If `until_idle`, stop once
        nothing is new.

        If the topology allows, plan several batches ahead and emit the batches by one job.
        """
        runs = (
            replace(call, name=name, interval=each)
            for name, each in zip(run_names.names(call.name), intervals, strict=False)
        )
        if why := bulk.reason_against(self.job.topology):
            log.info("%s: batches are emitted one by one: %s", self.job.topology.name, why)
            yield from self._one_by_one(call, runs, until_idle=until_idle)
        else:
            yield from self._in_trains(call, runs, until_idle=until_idle)

    def _in_trains(self, call: Run, runs: Iterator[Run], *, until_idle: bool = False) -> Iterator[Batch]:
        with hold(self.steps.locks, self.job.topology.name, call):
            trains = Pipeline(
                self.steps, self.application, self._finish, self.succeed, self._planned_behind, self.found
            )
            yield from trains.run(runs, until_idle=until_idle)

    def _planned_behind(self, number: int) -> None:
        self.behind = number

    def _one_by_one(self, call: Run, runs: Iterator[Run], *, until_idle: bool) -> Iterator[Batch]:
        with hold(self.steps.locks, self.job.topology.name, call):
            for run in runs:
                done = self._finish(run)
                yield from done
                if until_idle and not done:
                    return

    def _alone(self, runs: Iterable[Run]) -> Iterator[Batch]:
        """Yield the batches of runs. Each run is held by its own name."""
        for run in runs:
            yield from self._finish_held(run)

    def _unfinished(self) -> Iterator[Batch]:
        return UnfinishedBatches(self.steps, self.application, self._finish).finished()

    def _finish(self, run: Run) -> list[Batch]:
        """Bring the run's batch through all steps. Return the adopted batches and the run's own, or an empty list if
        nothing is new.
        """
        if run.restate is not None:
            self._tell_begun(run)
        found = Advance(self.steps, run, self.submit, self.succeed).to_commit()
        if isinstance(found, NothingNew):
            return []
        if isinstance(found, Wait):
            self.waits(run, found)
        if not found.applied:
            self.found.add(found.batch.txid)
        adopted = [self.steps.ledger.batch(self.job.topology.name, txid) for txid in found.adopted]
        return [*adopted, self.succeed(found.batch)]

    def _tell_begun(self, run: Run) -> None:
        """Log the files that differ from the plan of an unfinished restate. The plan stays (R3)."""
        topology, own = self.job.topology, self.steps.ledger.head(self.job.topology.name, run).own
        if own is None or own.status not in (BatchStatus.PLANNED, BatchStatus.EMITTED):
            return
        if changed := self.differs(topology, own):
            told = how_to_restate(topology, own, changed)
            log.warning("%s: txid %s goes on as it was planned%s", topology.name, own.txid, told)

    def submit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        """Run the job on an attempt's folder."""
        self.application.emit(folder, assignment)


def _not_its_turn(run: Run, wait: Wait) -> NoReturn:
    raise NotItsTurn(
        f"{wait.batch.topology}: txid {wait.batch.txid} of {wait.batch.lease_run} is in flight; "
        f"try again when it is committed, see `txbatch batches {wait.batch.topology}`"
    )
