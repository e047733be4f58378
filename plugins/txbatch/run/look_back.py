"""Late records after the commit of a run: positions within the lookback are counted again, all others are told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Batch, BatchKind, BatchStatus, Run
from txbatch.core.errors import LeaseHeld, NotItsTurn, StaleAttempt, TerminalError, TxbatchError
from txbatch.core.protocol import lookback, restate
from txbatch.core.protocol.lookback import TABLE_MAX, TABLE_NEWEST, CountedPlan, Counting, LatePosition, plan_of
from txbatch.run.run_names import OF_CALL
from txbatch.run.steps import Steps
from txbatch.run.unfinished import NOT_OF_EMISSION, give_up, reason_of

log = logging.getLogger(__name__)
# Brings the batch of a run through all steps, and returns the finished batches.
Finish = Callable[[Run], list[Batch]]
_NEXT_RUN = "the next run counts them"


@dataclass
class LookBack:
    """Counts late positions again for a run or a call, `of`. `told` are late positions left as counted."""

    steps: Steps
    of: Run
    told: list[LatePosition] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The topology's name."""
        return self.steps.job.topology.name

    def due(self, counted: Counting) -> list[LatePosition]:
        """Return the late positions to count again, oldest first, and add the told positions to `told`."""
        due = list[LatePosition]()
        found = [late for late in self._in_files() if late.found_by in counted.txids or self._is_within(late, counted)]
        with ExitStack() as looks:
            for spout in lookback.in_files(self.steps.job.topology).values():
                looks.enter_context(spout.one_look())
            for late in [*found, *self._in_tables(counted), *self._in_folders(counted, found)]:
                within = self._is_within(late, counted)
                why_not = self._why_not(late) if within else late.why_not
                if within and why_not is None:
                    due.append(late)
                else:
                    self.told.append(replace(late, why_not=why_not))
        return sorted(due, key=lambda late: late.position)

    def _is_within(self, late: LatePosition, counted: Counting) -> bool:
        lengths = lookback.lookbacks(self.steps.job.topology)
        return any(counted.within(late.interval, lengths[name]) for name in late.streams if name in lengths)

    def run_of(self, late: LatePosition) -> Run:
        """Return the run to count a position again, always the same run."""
        again = late.as_restate()
        name = f"{self.of.name}{OF_CALL}{late.position}"
        return replace(self.of, name=name, interval=None, parameters={}, restate=again)

    def again(self, late: LatePosition, finish: Finish) -> list[Batch]:
        """Count a position again by `finish`. Tell the position instead after a failure, or if another run is in the way.

        Raise an error without a bearing on the position: no ledger, a newer try of the run, or the end of the task.
        """
        run, done = self.run_of(late), list[Batch]()
        try:
            done = finish(run)
            why_not = _older(late, done)
        except (LeaseHeld, NotItsTurn) as error:
            why_not = f"{_NEXT_RUN}: {error.text}"
        except StaleAttempt as error:
            if self._own(run) is not None:
                raise
            why_not = f"{_NEXT_RUN}: {error.text}"  # a person has aborted the restate
        except NOT_OF_EMISSION:
            raise
        except TxbatchError as error:
            own = self._own(run)
            if own is not None and own.status is BatchStatus.COMMITTED:
                raise  # the records are counted: success failed
            why_not = self._given_up(own, error)
        if why_not is not None:
            self.told.append(replace(late, why_not=why_not))
        return done

    def _own(self, run: Run) -> Batch | None:
        """Return the batch of a run, unless aborted."""
        return self.steps.ledger.head(self.name, run).own

    def _given_up(self, own: Batch | None, error: TxbatchError) -> str:
        """Abort a failed restate: a restate holds no records, and must block no batch. Return the reason.

        Raise StaleAttempt if a newer try of the restate is at work (R5).
        """
        log.warning("%s: %s: %s", self.name, f"txid {own.txid} is aborted" if own else "late records are left", error)
        if own is not None:
            give_up(self.steps.ledger, own, error)
        return reason_of(error)

    def _in_tables(self, counted: Counting) -> Iterator[LatePosition]:
        """Yield the positions with late rows, without those of the run. A table that cannot be compared is logged."""
        topology = self.steps.job.topology
        for name, spout in lookback.in_tables(topology).items():
            plans = [(each, plan) for each in self._compared(name, counted) if (plan := plan_of(each.plan, name))]
            try:
                found = spout.late_rows([plan for _, plan in plans])
            except TxbatchError as error:
                log.warning("%s: late rows of %s were not looked for: %s", topology.name, spout.table, error)
                continue
            for (each, _), rows in zip(plans, found, strict=True):
                if late := lookback.in_table(name, spout.table, each, rows):
                    yield late

    def _in_folders(self, counted: Counting, known: Collection[LatePosition]) -> Iterator[LatePosition]:
        """Yield the positions within the lookback with new or grown files in folders of the interval alone.

        Runs of later intervals read no such file. Positions `known` from reading are left out.
        """
        topology, positions = self.steps.job.topology, {late.position for late in known}
        for name, spout in lookback.in_files(topology).items():
            looks = spout.by_folders and name in lookback.lookbacks(topology)
            for each in self._compared(name, counted) if looks else ():
                plan = plan_of(each.plan, name)
                try:
                    came = spout.bounded(plan, spout.arrived(plan, spout.as_now(plan))) if plan else []
                except TxbatchError as error:
                    log.warning("%s: late files of %s were not looked for: %s", topology.name, each.interval, error)
                    continue
                if each.position not in positions and (late := lookback.in_folders(name, each, came)):
                    yield late

    def _compared(self, stream: str, counted: Counting) -> list[CountedPlan]:
        """Return the counted positions to compare with a source: within the lookback, or else only the newest."""
        length = lookback.lookbacks(self.steps.job.topology).get(stream)
        if counted.whole is None:
            return []
        most, since = TABLE_NEWEST if length is None else TABLE_MAX, counted.since(length)
        found = self.steps.ledger.counted_plans(self.name, since, counted.whole.end, most + len(counted.txids))
        return [each for each in found if each.position not in counted.txids][:most]

    def _in_files(self) -> Sequence[LatePosition]:
        topology = self.steps.job.topology
        if not lookback.in_files(topology):
            return ()
        return lookback.outstanding(self.steps.ledger.found_late(topology.name), self._is_mine)

    def _is_mine(self, run: str) -> bool:
        return run == self.of.name or run.startswith(f"{self.of.name}{OF_CALL}")

    def _why_not(self, late: LatePosition) -> str | None:
        """Return the reason to leave a position as counted; None if the position may be counted again (R17).

        An outage is no reason: raise TransientError, and the next try asks again.
        """
        if late.why_not:
            return late.why_not
        topology, ledger = self.steps.job.topology, self.steps.ledger
        try:
            restate.check_topology(topology)
            version = ledger.version(topology.name, late.position)
            restate.check_version(version, late.as_restate())
            return self._differing(late, version.plan)
        except TerminalError as error:
            return error.text

    def _differing(self, late: LatePosition, counted: BatchPlan) -> str | None:
        """Return the first changed file of a counted plan in any stream, with the change; None without such a file.

        Files may change until the restate is planned: the commit compares again, by `lookback.check_files`.
        """
        found_by = self.steps.ledger.batch(self.name, late.found_by)
        again = restate.restate_command(self.name, late.position)
        for name, spout in sorted(lookback.in_files(self.steps.job.topology).items()):
            then, met = plan_of(counted, name), plan_of(found_by.plan, name)
            if not then or not met:
                continue
            try:
                now = spout.as_now(then)
                if gone := sorted((late.files.keys() & met["files"].keys()) - now["files"].keys()):
                    return lookback.late_gone(gone[0])
                if told := lookback.differing(then["files"], now["files"], spout.arrived(then, now), again):
                    return told
            except TxbatchError as error:
                return error.text
        return None


def _older(late: LatePosition, done: Sequence[Batch]) -> str | None:
    """Return why late records are not counted yet, if a run only found an older restate."""
    for batch in done:
        if batch.kind is BatchKind.RESTATE and batch.position == late.position and batch.txid <= late.found_by:
            return f"{_NEXT_RUN}: txid {batch.txid} of this run was before them"
    return None
