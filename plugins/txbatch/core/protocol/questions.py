"""The questions to a ledger besides the steps of a batch: of runs, of people, and of several batches at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from txbatch.core.batch.transaction import INTERVAL_KEY, Batch, Interval, Run
from txbatch.core.definition.redefinition import Redefinition
from txbatch.core.errors import WindowsGone
from txbatch.core.protocol.lookback import CountedPlan, FoundLate, LookFacts
from txbatch.core.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A batch without success, and the run that looked after the batch."""

    txid: int
    run: Run


def unfinished(batch: Batch) -> Unfinished:
    """Return an unfinished batch, with the run that looked after the batch."""
    name, interval = batch.lease_run or "", None
    if batch.restate is not None:
        return Unfinished(batch.txid, Run(name, restate=batch.restate))
    if batch.by_interval:
        interval = Interval(*map(datetime.fromisoformat, batch.key.removeprefix(INTERVAL_KEY).split("/")))
    return Unfinished(batch.txid, Run(name, interval=interval, parameters=batch.plan.parameters))


class Questions(Protocol):
    """Each question is one transaction, and changes nothing."""

    def check_definition(self, topology: Topology, job: str) -> None:
        """Raise SchemaMismatch if `register` would, and change nothing."""

    def redefinitions(self, topology: Topology) -> Sequence[Redefinition]:
        """Return each difference between the topology and the stored definition, with the consequence of each (R23)."""

    def check_interval(self, topology: str, interval: Interval) -> None:
        """Raise IntervalNotOver or IntervalTaken if `plan` would, and change nothing."""

    def refused(self, topology: Topology, intervals: Sequence[Interval]) -> Sequence[WindowsGone]:
        """Return the errors of the first intervals, in order, refused by `plan` because windows have left (R30)."""

    def last_txid(self, topology: str) -> int:
        """Return the highest txid ever used, 0 before the first. While the number stays the same, nobody has planned anything."""

    def closed_to(self, topology: str) -> Mapping[str, int]:
        """Return by state up to when windows are closed, in microseconds; empty if none is closed (R26)."""

    def look_facts(self, batch: Batch, since: datetime | None) -> LookFacts:
        """Return the plan of the last look before a batch, and intervals of earlier batches: the newest intervals, and all
        intervals with an end after `since`.
        """

    def found_late(self, topology: str) -> Sequence[FoundLate]:
        """Return the late records met by committed batches, unless a later version counts the records."""

    def counted_plans(self, topology: str, since: datetime | None, until: datetime, most: int) -> Sequence[CountedPlan]:
        """Return committed positions with intervals from `since` to before `until`, with the counting plans: the `most` newest,
        newest first.
        """

    def committed_by(self, topology: str, run: Run) -> Batch | None:
        """Return the last batch committed by a run, own or adopted; None if the run committed no batch."""

    def committed_by_each(self, topology: str, prefix: str) -> list[int]:
        """Return in order the txids committed by runs named `prefix` and a number, own and adopted batches alike."""

    def oldest_unfinished(self, topology: str, prefix: str, above: int) -> Unfinished | None:
        """Return the lowest txid over `above` without success or abort, of runs with `prefix` in front of the name; or None."""
