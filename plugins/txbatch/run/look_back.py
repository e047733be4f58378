"""Late records after the commit of a run: positions within the lookback are counted again, all others are told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from txbatch.core.batch.plan import BatchPlan, OfInterval
from txbatch.core.batch.transaction import Batch, Metadata, Run
from txbatch.core.errors import LeaseHeld, NotItsTurn, StaleAttempt, TerminalError, TxbatchError
from txbatch.core.protocol import lookback, restate
from txbatch.core.protocol.lookback import Counting, LatePosition
from txbatch.run.run_names import OF_CALL
from txbatch.run.steps import Steps
from txbatch.run.unfinished import reason_of

log = logging.getLogger(__name__)
# Brings the batch of a run through all steps, and returns the finished batches.
Finish = Callable[[Run], list[Batch]]


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
        due, topology = list[LatePosition](), self.steps.job.topology
        lengths = lookback.lookbacks(topology)
        for late in self._late():
            longest = max((lengths[name] for name in late.streams if name in lengths), default=None)
            if longest is not None and counted.within(late.interval, longest):
                why_not = self._why_not(late)
                due += [] if why_not else [late]
                self.told += [replace(late, why_not=why_not)] if why_not else []
            elif late.found_by in counted.txids:
                self.told.append(late)
        return due

    def run_of(self, late: LatePosition) -> Run:
        """Return the run to count a position again, always the same run."""
        again = late.as_restate()
        name = f"{self.of.name}{OF_CALL}{late.position}"
        return replace(self.of, name=name, interval=None, parameters={}, restate=again)

    def again(self, late: LatePosition, finish: Finish) -> list[Batch]:
        """Count a position again by `finish`. Tell the position instead after a failure, or if another run is in the way."""
        run = self.run_of(late)
        try:
            return finish(run)
        except (LeaseHeld, NotItsTurn) as error:
            why_not = f"the next run counts them: {error.text}"
        except TerminalError as error:
            if isinstance(error, StaleAttempt):
                raise
            why_not = self._given_up(run, error)
        self.told.append(replace(late, why_not=why_not))
        return []

    def _given_up(self, run: Run, error: TxbatchError) -> str:
        """Abort a failed restate: a restate holds no records, and must block no batch. Return the reason."""
        own = self.steps.ledger.head(self.name, run).own
        if own is not None and not own.status.final:
            log.warning("%s: txid %s is aborted: %s", self.name, own.txid, error)
            self.steps.ledger.abort(self.name, own.txid, reason_of(error))
        return reason_of(error)

    def _late(self) -> Sequence[LatePosition]:
        topology = self.steps.job.topology
        if not lookback.in_files(topology):
            return ()
        return lookback.outstanding(self.steps.ledger.found_late(topology.name), self._is_mine)

    def _is_mine(self, run: str) -> bool:
        return run == self.of.name or run.startswith(f"{self.of.name}{OF_CALL}")

    def _why_not(self, late: LatePosition) -> str | None:
        """Return the reason to leave a position as counted; None if the position may be counted again (R17)."""
        topology, ledger = self.steps.job.topology, self.steps.ledger
        try:
            restate.check_topology(topology)
            version = ledger.version(topology.name, late.position)
            restate.check_version(version, late.as_restate())
        except TerminalError as error:
            return error.text
        now = ledger.batch(topology.name, late.found_by).plan
        spouts = lookback.in_files(topology)
        changes = (
            _differing(spouts[name], _plan_of(version.plan, name), _plan_of(now, name))
            for name in sorted(late.streams & spouts.keys())
        )
        return next(filter(None, changes), None)


def _plan_of(plan: BatchPlan, stream: str) -> Metadata | None:
    planned = plan.streams.get(stream)
    return planned.plan if isinstance(planned, OfInterval) else None


def _differing(spout: lookback.LooksBackInFiles, counted: Metadata | None, now: Metadata | None) -> str | None:
    if counted is None or now is None:
        return None
    return lookback.differing(counted["files"], now["files"], spout.arrived(counted, now))
