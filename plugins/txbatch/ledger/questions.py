"""The questions of a ledger, each answered by a single operation of the rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from txbatch.core.batch.plan import BatchPlan, OfInterval
from txbatch.core.batch.transaction import Batch, Interval, Run
from txbatch.core.errors import WindowsGone
from txbatch.core.protocol.ledger import Head, RunPlan
from txbatch.core.protocol.lookback import CountedPlan, FoundLate, LookFacts
from txbatch.core.protocol.restate import PositionVersion
from txbatch.core.topology.kept_windows import first_refused
from txbatch.core.topology.topology import Topology
from txbatch.ledger.rows import Rows


class Questions(ABC):
    """Questions of `core.protocol.ledger.Ledger`, over the rows of a store. A subclass opens the store's transaction."""

    @abstractmethod
    def store(self, *, snapshot: bool = False) -> AbstractContextManager[Rows]:
        """Context manager. Yield the rows of one transaction. If the block raises, the ledger is unchanged.

        All operations of a `snapshot` see the rows at the same moment.
        """

    def head(self, topology: str, run: Run) -> Head:
        """Return the topology's head for a run, without a lock."""
        return self.heads(topology, [run])[0]

    def heads(self, topology: str, runs: Sequence[Run]) -> Sequence[Head]:
        """Return the head for each of several runs, at the same moment."""
        with self.store(snapshot=True) as rows:
            return rows.heads(topology, runs)

    def batch(self, topology: str, txid: int) -> Batch:
        """Return a batch. Raise UnknownName if the topology has no such txid."""
        with self.store() as rows:
            return rows.batch(topology, txid)

    def version(self, topology: str, txid: int) -> PositionVersion:
        """Return the version that counts now for a txid's position. Raise UnknownName if the topology has no such txid."""
        with self.store(snapshot=True) as rows:
            return rows.version(topology, txid)

    def check_interval(self, topology: str, interval: Interval) -> None:
        """Raise IntervalNotOver if the interval is not over by the ledger's clock, IntervalTaken if a batch has a part of
        the interval.
        """
        with self.store() as rows:
            rows.taken_intervals(topology, [interval]).take(interval)

    def refused(self, topology: Topology, intervals: Sequence[Interval]) -> Sequence[WindowsGone]:
        """Return the errors of the first intervals, in order, refused by `plan` because windows have left (R30)."""
        with self.store() as rows:
            left = rows.windows_left(topology.name)
            if not left:
                return []
            planned = rows.pin_watermarks(topology, [_without_plan(topology, each) for each in intervals])
        plans = [BatchPlan.from_json(metadata) for _, metadata in planned]
        return first_refused(topology.name, zip(intervals, plans, strict=True), left)

    def look_facts(self, batch: Batch, since: datetime | None) -> LookFacts:
        """Return the plan of the last look before a batch, and the intervals of earlier batches."""
        with self.store(snapshot=True) as rows:
            return rows.look_facts(batch, since)

    def found_late(self, topology: str) -> Sequence[FoundLate]:
        """Return the late records met by committed batches, unless a later version counts the records."""
        with self.store() as rows:
            return rows.found_late(topology)

    def counted_plans(self, topology: str, since: datetime | None, until: datetime, most: int) -> Sequence[CountedPlan]:
        """Return the newest committed positions with intervals in a time, with the counting plans, newest first."""
        with self.store() as rows:
            return rows.counted_plans(topology, since, until, most)


def _without_plan(topology: Topology, interval: Interval) -> RunPlan:
    """Return a run of an interval with the metadata of the interval alone: the spouts are not asked."""
    of = [interval.start.isoformat(), interval.end.isoformat()]
    streams = {name: OfInterval({}, of) for name, stream in topology.streams.items() if stream.spout.by_interval}
    return Run("", interval=interval), BatchPlan(streams).to_json()
