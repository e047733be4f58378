"""Histories with rebuilds in the midst of them: what reports show, and showed before each swap (R17, R19, R23)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from model.corrections import STREAM, History, Work
from model.kept import Record
from support import code

from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Assignment, BatchKind, Restate, Run, TransactionAttempt
from txbatch.core.corrections.rebuild import Behind, Rebuild, Swapped
from txbatch.core.errors import TerminalError
from txbatch.core.protocol import planning_again


class Rebuilt(History):
    """A history that is counted again now and then: begun, counted version by version, and swapped, with all else between."""

    rebuild: Rebuild | None = None
    swaps = 0

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.counted: list[tuple[int, Sequence[Record]]] = []

    def do_rebuild(self, which: int, how: int) -> None:
        """Begin where none runs, count some versions, and swap at times."""
        if self.rebuild is None and not self.begin():
            return
        for _ in range(which % 5):
            if not self.count(how):
                break
        if how % 3:
            self.swap()

    def begin(self) -> bool:
        read = [work for work in self.of_status("committed") if work.batch.kind is not BatchKind.SKIP]
        try:
            rebuild = self.place.rebuilds.begin(self.topology, "jobs/model.py", code(), "it was wrong")
        except TerminalError:
            assert not read, "a rebuild was refused"
            return False
        assert read, "a rebuild of nothing was not refused"
        self.rebuild = rebuild
        return True

    def left(self) -> list[int]:
        """The versions that are to be counted, by txid."""
        last = max((txid for txid, _ in self.counted), default=0)
        counts = [each.txid for each in self.kept.versions.values() if each.replaced_by is None]
        return sorted(txid for txid in counts if txid > last and txid not in self.skips)

    def count(self, how: int) -> bool:
        """The next version, from what its source has now; whole, or not at all."""
        assert self.rebuild
        version, left = self.place.rebuilds.next(self.rebuild), self.left()
        assert (version and version.txid) == (left[0] if left else None)
        if version is None:
            return False
        read = self.read_again(self.batches[version.txid])
        hole = how % 7 == 0 and len(read) > 1
        if hole:
            read[sorted(read)[0]] = None
        attempt, metadata = TransactionAttempt(version.txid, 0), self.plan_again(version.txid)
        assignment = Assignment(self.topology.name, attempt, uuid4().hex, metadata, code())
        manifest = self.manifest(self.batches[version.txid], assignment, read)
        records = [record for part in read.values() for record in part or ()]
        partials = self.place.as_partials(self.topology, self.partials(records))
        try:
            assert self.place.rebuilds.count(self.rebuild, self.topology, assignment, manifest, partials)
        except TerminalError:
            assert hole, f"txid {version.txid} was not counted"
            return False
        assert not hole, f"txid {version.txid} was counted with a hole"
        self.counted.append((version.txid, records))
        return True

    def plan_again(self, txid: int) -> Any:
        version = self.ledger.version(self.topology.name, txid)
        head = self.ledger.head(self.topology.name, Run("rebuild"))
        return planning_again.plan_again(self.topology, head, version, Restate(version.first.txid, "it was wrong"))

    def read_again(self, work: Work) -> dict[str, Sequence[Record] | None]:
        """What the position read, as it is now: never its holes, and all of what was given up and is counted after all."""
        if self.shape.by_interval:
            return self.read(work)
        ranges = self.plan_of(Run("rebuild", restate=Restate(work.batch.position, "it was wrong")))
        planned = BatchPlan.from_json(self.plan_again(work.batch.txid)).streams[STREAM].ranges
        assert {name: (each["start"], each["end"]) for name, each in planned.items()} == ranges
        return {name: list(self.spout.records[name][start:end]) for name, (start, end) in ranges.items()}

    def swap(self) -> None:
        assert self.rebuild
        left, found = self.left(), self.place.rebuilds.swap(self.rebuild, self.topology)
        if left:
            assert found == Behind()
            return
        newest = self.of_status("committed")[-1].batch.txid
        assert found == Swapped(newest)
        self.kept.rebuilt(self.counted, newest)
        self.rebuild, self.counted, self.swaps = None, [], self.swaps + 1
        for work in self.of_status("open"):  # what was emitted before counts no more
            work.emitted = None
        assert self.place.report(self.topology) == self.kept.report, "the swap"
