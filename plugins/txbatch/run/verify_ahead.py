"""Verify reads ahead: the next batches are emitted by one job where a rebuild would do so (`core.protocol.bulk`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from txbatch.core.batch.plan import BatchPlan
from txbatch.core.corrections.verify import Again, EmitAgain, Recorded
from txbatch.core.protocol import bulk
from txbatch.core.protocol.bulk_size import JobSize
from txbatch.core.protocol.spout_coordinators import Coordinators
from txbatch.core.topology.topology import Topology

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Readable:
    """A batch with the plans to read the batch again: its own plan, and a plan of its interval as of now, if there is one.

    `again` is the result of the first of these plans, if the plan was emitted ahead.
    """

    recorded: Recorded
    then: BatchPlan
    now: BatchPlan | None
    again: Again | None = None

    @property
    def first(self) -> BatchPlan:
        """The plan to read first: of an interval, the plan as of now."""
        return self.then if self.as_now is None else self.as_now

    @property
    def as_now(self) -> BatchPlan | None:
        """The plan of the interval as of now, if it differs from the batch's own plan."""
        return None if self.now is None or self.now.streams == self.then.streams else self.now


@dataclass(slots=True)
class ReadAhead:
    """Emits the next batches by one job. Batches that do not go together, and failed batches, are left to their turn.

    `readable` returns a batch with its plans, made by one look at the sources; None for a batch that is not to be read.
    `found` has by txid the batches emitted or planned ahead.
    """

    topology: Topology
    emitter: EmitAgain
    readable: Callable[[int, Coordinators], Readable | None]
    found: dict[int, Readable]
    _to: int = 0

    def look(self, txids: Sequence[int], number: int) -> None:
        """Emit batches from the one at `number` on, unless an earlier look reached the one at `number`."""
        if number >= self._to and bulk.reason_against(self.topology) is None:
            self._to = number + self._emit(txids[number : number + bulk.BATCHES_MAX])

    def _emit(self, txids: Sequence[int]) -> int:
        """Emit the first batches that go together, and return how many txids were looked at."""
        looked, together = self._together(txids)
        self.found.update((each.recorded.txid, each) for each in together)
        if len(together) > 1:
            log.info("%s: emitting %d batches by one job", self.topology.name, len(together))
            plans = {each.recorded.txid: (each.first, each.recorded.position) for each in together}
            emitted = self.emitter.emit_bulk(self.topology.name, plans)
            for each in together:
                self.found[each.recorded.txid] = replace(each, again=emitted.get(each.recorded.txid))
        return max(looked, 1)

    def _together(self, txids: Sequence[int]) -> tuple[int, list[Readable]]:
        """Return the number of txids looked at, and the first batches to go together, with plans."""
        looked, found, size = 0, list[Readable](), JobSize(self.topology)
        try:
            with Coordinators() as by:
                for txid in txids:
                    each = self.readable(txid, by)
                    if each is not None:
                        if found and not bulk.go_together(self.topology, found[0].first, each.first):
                            break
                        found.append(each)
                        size.add(each.first)
                    looked += 1
                    if size.full:
                        break
        except Exception as error:  # also of a spout's own fused(); a batch that cannot be asked for raises at its turn
            log.warning("%s: batches are read one by one: %s", self.topology.name, error)
        return looked, found
