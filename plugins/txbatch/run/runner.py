"""`txbatch run`: the four steps one after the other, in this process, without Airflow."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, islice, repeat
from types import TracebackType
from typing import NoReturn, Self
from uuid import uuid4

from txbatch.core import fused
from txbatch.core.application import Application, Job
from txbatch.core.coordinator import NothingNew
from txbatch.core.errors import (
    BrokenChain,
    Incomplete,
    LeaseHeld,
    NotItsTurn,
    PartitionUnreadable,
    StaleAttempt,
    TerminalError,
    TxbatchError,
)
from txbatch.core.ledger import Unfinished
from txbatch.core.protocol import Wait
from txbatch.core.restate import how_to_restate, told_some
from txbatch.core.staging import AttemptFolder
from txbatch.core.topology import Topology
from txbatch.core.transaction import Assignment, Batch, BatchStatus, Interval, Metadata, Restate, Run, digest
from txbatch.run.advance import Advance
from txbatch.run.fused import Planned, emit_ahead, plan_ahead
from txbatch.run.lease import batches_kept
from txbatch.run.steps import Steps

log = logging.getLogger(__name__)
RUN_PREFIX = "cli:"
# Between the name of a call that plans several batches ahead and the number of one of its runs.
OF_CALL = "+"
_OF_CALL = re.compile(rf"({RUN_PREFIX}(?:[0-9a-f]{{12}}|restate-[0-9a-f]{{12}}-\d+))\{OF_CALL}\d+")


# Which files of a batch's source differ from its plan, which is not committed yet.
Differs = Callable[[Topology, Batch], Sequence[Mapping[str, str]]]
# What a run does that another live run is in the way of: it raises.
Waits = Callable[[Run, Wait], NoReturn]


class Runner:
    """Runs batches of one job, all in one application, which ends with the `with` block."""

    def __init__(
        self,
        steps: Steps,
        application: Application,
        differs: Differs = lambda topology, batch: (),
        waits: Waits | None = None,
    ) -> None:
        self.steps, self.application, self.differs = steps, application, differs
        self.waits = waits or _not_its_turn

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
        """Yield each batch as it is committed: first what an earlier call left unfinished, unless a run_id is given.

        Nothing is yielded when there is nothing new. NotItsTurn while another live run is in the way.
        """
        if run_id is None:
            yield from self._unfinished()
        if run_id is None and interval is None and until_idle:
            yield from self._each(_new_run(parameters), repeat(None), until_idle=True)
            return
        run = _new_run(parameters) if run_id is None else Run(f"{RUN_PREFIX}{run_id}", parameters=parameters or {})
        with self._held(replace(run, interval=interval)) as run:
            done = self._finish(run)
        yield from done

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
        """Count committed batches again, in their places (R17); yield each batch as it is committed.

        First comes what an earlier call left unfinished, unless a run_id is given. A txid that is a restate stands for its
        position. A call for the same txids and reason as one that was killed goes on where that ended.
        TerminalError, before anything is changed, for what cannot be counted again.
        """
        asked = [Restate(each, why, by, accept_missing, skipped) for each in self._positions(txids)]
        runs = self._unfinished_call(asked) if run_id is None else _runs(run_id, asked)
        for run in runs:
            self.steps.check_restate(run)
        if run_id is None:
            yield from self._unfinished()
        if run_id is None and len(runs) > 1 and fused.why_not(self.job.topology) is None:
            yield from self._together(_call(runs[0].name), iter(runs))
            return
        for run in runs:
            with self._held(run):
                done = self._finish(run)
            yield from done

    def _positions(self, txids: Iterable[int]) -> list[int]:
        """Return the positions of some txids, each once, in their order."""
        self.steps.register()
        name, ledger = self.job.topology.name, self.steps.ledger
        return sorted({ledger.batch(name, txid).position for txid in txids})

    def _unfinished_call(self, asked: Sequence[Restate]) -> list[Run]:
        """Return the runs of the first call for the same that did not finish: an earlier one that was killed, or a new one."""
        topology, ledger = self.job.topology.name, self.steps.ledger
        for number in count(1):
            call = f"restate-{digest([[each.position, each.why] for each in asked])[:12]}-{number}"
            runs = _runs(call, asked, each_by_name=len(asked) > 1)
            done = [head.own for head in ledger.heads(topology, runs)]
            if not done or not all(batch is not None and batch.succeeded for batch in done):
                return runs
            counted = told_some([f"txid {batch.txid}" for batch in done if batch])
            log.warning("%s: the same was asked before, and counted as %s; it is counted again", topology, counted)
        raise AssertionError("numbers do not end")

    def run_each(self, intervals: Iterable[Interval], parameters: Metadata | None = None) -> Iterator[Batch]:
        """Yield the batch of each interval, in order, also of those that are committed already; as `run` does."""
        yield from self._unfinished()
        yield from self._each(_new_run(parameters), intervals)

    def catch_up(self, run: Run, intervals: Iterable[Interval] | None) -> Iterator[Batch]:
        """Yield the batches of one run: that of each interval, in order; None: until nothing is new.

        To the ledger they are runs named after this one. Called again for the same run, those it has made are found again.
        """
        self.steps.register()
        yield from self._each(run, repeat(None) if intervals is None else intervals, until_idle=intervals is None)

    def _each(self, call: Run, intervals: Iterable[Interval | None], *, until_idle: bool = False) -> Iterator[Batch]:
        """Yield the batch of each interval, or of none, by runs named after this one; `until_idle`: until there is nothing new.

        Where the topology lets that, several are planned ahead and emitted by one job.
        """
        runs = (
            replace(call, name=name, interval=each) for name, each in zip(_names(call.name), intervals, strict=False)
        )
        if why := fused.why_not(self.job.topology):
            log.info("%s: batches are emitted one by one: %s", self.job.topology.name, why)
            yield from self._one_by_one(call.name, runs, until_idle=until_idle)
        else:
            yield from self._together(call.name, runs, until_idle=until_idle)

    def _together(self, call: str, runs: Iterator[Run], *, until_idle: bool = False) -> Iterator[Batch]:
        """Yield the batches of the runs of a call: as many as can be are planned ahead at once, and emitted by one job."""
        left = list[Run]()
        with self._held(Run(call)):
            while left := [*left, *islice(runs, fused.BATCHES_MAX - len(left))]:
                if planned := plan_ahead(self.steps, left):
                    left = left[len(planned) :]
                    yield from self._finish_planned(planned)
                    continue
                run, *left = left
                done = self._finish(run)
                yield from done
                if until_idle and not done:
                    return

    def _one_by_one(self, call: str, runs: Iterator[Run], *, until_idle: bool) -> Iterator[Batch]:
        with self._held(Run(call)):
            for run in runs:
                done = self._finish(run)
                yield from done
                if until_idle and not done:
                    return

    def _finish_planned(self, planned: Sequence[Planned]) -> Iterator[Batch]:
        """Emit batches by one job, and bring each to its commit, in order. What is not emitted then is emitted by itself."""
        emit_ahead(self.steps, self.application, planned)
        with batches_kept(self.steps.ledger, planned, self.steps.repeat):
            for number, (batch, run) in enumerate(planned, 1):
                with _told_behind(batch, [other for other, _ in planned[number:]]):
                    done = self._finish_emitted(batch, run)
                yield from done

    def _finish_emitted(self, batch: Batch, run: Run) -> list[Batch]:
        """Commit and succeed an emitted batch, unless it has succeeded; where that cannot be, finish its run as any other."""
        if batch.succeeded:
            log.info("%s: already committed as txid %s", batch.topology, batch.txid)
            return [batch]
        now = self.steps.ledger.batch(batch.topology, batch.txid)
        if now.status is BatchStatus.EMITTED and now.lease_run == run.name:
            try:
                committed = self.steps.commit(now, run)
            except (BrokenChain, Incomplete, LeaseHeld, NotItsTurn, StaleAttempt) as error:
                log.info("%s", error)
            else:
                return [self._succeeded(committed.batch)]
        return self._finish(run)

    def _unfinished(self) -> Iterator[Batch]:
        name, txid, tried = self.job.topology.name, 0, set[str]()
        self.steps.register()
        while found := self.steps.ledger.oldest_unfinished(name, RUN_PREFIX, above=txid):
            txid = found.txid
            with self._held(found.run) as run:
                log.info("%s: finishing what %s began", name, run.name)
                if (call := _call(run.name)) not in tried:
                    tried.add(call)
                    emit_ahead(self.steps, self.application, self._begun_by(found))
                batch = self.steps.ledger.batch(name, txid)
                committed = batch.status is BatchStatus.COMMITTED
                done = self._succeeded_late(batch) if committed else self._finish_begun(batch, run)
            yield from done

    def _begun_by(self, found: Unfinished | None) -> list[Planned]:
        """Return an unfinished batch, and those behind it of the same call."""
        name, ledger, begun = self.job.topology.name, self.steps.ledger, list[Planned]()
        while (
            found and (not begun or _call(found.run.name) == _call(begun[0][1].name)) and len(begun) < fused.BATCHES_MAX
        ):
            begun.append((ledger.batch(name, found.txid), found.run))
            found = ledger.oldest_unfinished(name, RUN_PREFIX, above=found.txid)
        return begun

    @contextmanager
    def _held(self, run: Run) -> Iterator[Run]:
        """Context manager. Hold the name of the run, or its call, until the block ends; LeaseHeld while another process does."""
        with self.steps.locks.hold(self.job.topology.name, _call(run.name)) as held:
            if not held:
                raise LeaseHeld(f"{self.job.topology.name}: {run.name} is running; wait until it ends")
            yield run

    def _finish(self, run: Run) -> list[Batch]:
        """Bring the run's batch through all steps; return what it adopted and its own, none for nothing new."""
        if run.restate is not None:
            self._tell_begun(run)
        found = Advance(self.steps, run, self.submit).to_commit()
        if isinstance(found, NothingNew):
            return []
        if isinstance(found, Wait):
            self.waits(run, found)
        adopted = [self.steps.ledger.batch(self.job.topology.name, txid) for txid in found.adopted]
        return [*adopted, self._succeeded(found.batch)]

    def _tell_begun(self, run: Run) -> None:
        """Say of a restate that goes on which files differ from its plan, which stays (R3)."""
        topology, own = self.job.topology, self.steps.ledger.head(self.job.topology.name, run).own
        if own is None or own.status not in (BatchStatus.PLANNED, BatchStatus.EMITTED):
            return
        if changed := self.differs(topology, own):
            told = how_to_restate(topology, own, changed)
            log.warning("%s: txid %s goes on as it was planned%s", topology.name, own.txid, told)

    def _finish_begun(self, batch: Batch, run: Run) -> list[Batch]:
        """Finish what an earlier call began. A restate that cannot be is aborted: it holds no records and keeps none back."""
        try:
            return self._finish(run)
        except (TerminalError, PartitionUnreadable) as error:
            if run.restate is None or isinstance(error, StaleAttempt):
                raise
            log.warning("%s: txid %s is aborted: %s", batch.topology, batch.txid, error)
            self.steps.ledger.abort(batch.topology, batch.txid, str(error))
            return []

    def _succeeded_late(self, batch: Batch) -> list[Batch]:
        """Succeed a batch that an earlier run committed; return none where that fails again, which keeps no other batch back."""
        try:
            return [self._succeeded(batch)]
        except TxbatchError as error:
            log.warning("%s", error)
            return []

    def _succeeded(self, batch: Batch) -> Batch:
        self.steps.success(batch)
        return replace(batch, succeeded=True)

    def submit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        """Run the job on an attempt's folder."""
        self.application.emit(folder, assignment)


@contextmanager
def _told_behind(batch: Batch, behind: Sequence[Batch]) -> Iterator[None]:
    """Context manager. Say of a batch that fails which ones of the same call stay open behind it, and what goes on with them."""
    try:
        yield
    except TxbatchError:
        if behind:
            topology, txid, open_ = batch.topology, batch.txid, told_some([f"txid {each.txid}" for each in behind])
            log.warning(
                '%s: behind txid %s stay open: %s; mend it, or `txbatch abort %s %s --why "..."`, and call this again',
                *(topology, txid, open_, topology, txid),
            )
        raise


def _not_its_turn(run: Run, wait: Wait) -> NoReturn:
    raise NotItsTurn(
        f"{wait.batch.topology}: txid {wait.batch.txid} of {wait.batch.lease_run} is in flight; "
        f"try again when it is committed, see `txbatch batches {wait.batch.topology}`"
    )


def _new_run(parameters: Metadata | None) -> Run:
    return Run(f"{RUN_PREFIX}{uuid4().hex[:12]}", parameters=parameters or {})


def _call(name: str) -> str:
    """Return the name that a process holds for a run: its own, or that of the call that emits it with others."""
    found = _OF_CALL.fullmatch(name)
    return found[1] if found else name


def _names(call: str) -> Iterator[str]:
    """Yield names for the runs of a call."""
    return (f"{call}{OF_CALL}{number}" for number in count(1))


def _runs(name: str, asked: Sequence[Restate], *, each_by_name: bool = False) -> list[Run]:
    """Return a run of this name for each position; or of this call, each by a name of its own."""
    call = f"{RUN_PREFIX}{name}"
    names = _names(call) if each_by_name else repeat(call)
    return [Run(each_name, restate=each) for each_name, each in zip(names, asked, strict=False)]
