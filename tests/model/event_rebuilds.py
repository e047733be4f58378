"""Histories of event time in which all is counted again now and then, also with other times, and swapped (R23, R25, R26)."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

from model.event_times import STEPS, History
from support import code, run
from twin.rebuild import MemoryRebuilds

from txbatch.core.batch.transaction import Assignment, Batch, Restate, TransactionAttempt
from txbatch.core.corrections.rebuild import Swapped
from txbatch.core.errors import ChangeTooEarly, TxbatchError
from txbatch.core.protocol.planning_again import plan_again
from txbatch.core.protocol.spout_coordinators import Coordinators
from txbatch.direct.emitter import emit_batch


@dataclass
class Rebuilding(History):
    """A history with rebuilds."""

    steps: tuple[str, ...] = (*STEPS, "rebuild", "rebuild", "drop_past")
    swaps: int = 0
    dropped: int = 0

    def rebuild(self) -> None:
        """The source has other times by now of what some batches have read; all is read again."""
        rebuilds = MemoryRebuilds(self.ledger)
        waiting = {each.position for each in self.open}
        for each in self.standing():
            if each.position not in waiting and self.random.random() < 0.3:
                self.correct(each)
        try:
            rebuild = rebuilds.begin(self.topology, "job.py", code("new"), "a test")
        except TxbatchError:
            return  # nothing is counted yet
        while (version := rebuilds.next(rebuild)) is not None:
            assignment = self.again(version)
            for spout in self.spouts.values():
                spout.away, spout.given = set(), []
            manifest, partials = emit_batch(self.topology, assignment)
            assert rebuilds.count(rebuild, self.topology, assignment, manifest, partials)
            self.read_by[version.txid] = [time for spout in self.spouts.values() for time in spout.given]
        assert isinstance(rebuilds.swap(rebuild, self.topology), Swapped)
        self.swaps += 1

    def again(self, version: Batch) -> Assignment:
        """What is read again of a version that counts."""
        found = self.ledger.version("t", version.txid)
        head, asked = self.ledger.head("t", run("rebuild")), Restate(version.position, "a test")
        with Coordinators() as coordinators:
            plan = plan_again(self.topology, head, found, asked, self.ledger.upstream, coordinators)
        attempt = TransactionAttempt(version.txid, 0)
        return Assignment("t", attempt, uuid4().hex, plan, code("new"), version.position)

    def drop_past(self) -> None:
        """What a rebuild replaced goes, once the topology below has read what that changed."""
        if not self.handed_on:
            return  # to who begins after that nothing comes of what was closed before
        try:
            self.dropped += len(MemoryRebuilds(self.ledger).drop_past("t"))
        except ChangeTooEarly:
            return
