"""Two streams at random, one read by partitions and one that is not, with aborts and late skips: each record counts once."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from sizes import some_of
from support import ListSpout, LogSpout, code, manifest_of, run

from txbatch import Count, OpaqueState, Topology
from txbatch.core.batch.transaction import Batch, BatchKind, BatchStatus
from txbatch.core.errors import BrokenChain, NotItsTurn
from txbatch.core.protocol import coordinator, skip
from txbatch.memory.ledger import MemoryLedger

HISTORIES, STEPS = some_of(300, 3_000), 20
DO = {"plan": 5, "commit": 4, "abort": 2, "skip": 3}


class History:
    """Batches of both streams, brought through by runs that never die."""

    def __init__(self, seed: int) -> None:
        self.random, self.ledger = Random(seed), MemoryLedger()
        self.log, self.list = LogSpout({"a": 0, "b": 0}, size=1), ListSpout()
        self.topology, self.runs, self.late_skips = Topology("two", max_pending=3), 0, 0
        for name, spout in (("log", self.log), ("list", self.list)):
            stream = self.topology.new_stream(name, spout).group_by("word")
            stream.persistent_aggregate(OpaqueState(name), guarantee="at_least_once", count=Count())
        self.ledger.register(self.topology, "jobs/two.py")

    def go(self) -> None:
        """Some steps, and then all that is left; compare after each."""
        for step in self.random.choices(list(DO), list(DO.values()), k=STEPS):
            getattr(self, step)()
            self.compare()
        while self.open() or self.planned():
            self.commit()
        self.compare()
        assert self.counted("log", "a") == self.log.lengths["a"]
        assert self.counted("log", "b") == self.log.lengths["b"]
        assert self.counted("list", "") == sum(self.list.sizes)

    def plan(self) -> None:
        """Some records come, and a batch is planned."""
        where = self.random.choice(["a", "b", "list"])
        if where == "list":
            self.list.sizes.append(self.random.randint(1, 3))
        else:
            self.log.lengths[where] += 1
        self.planned()

    def planned(self) -> bool:
        self.runs += 1
        return isinstance(coordinator.initialize_transaction(self.ledger, self.topology, run(str(self.runs))), Batch)

    def commit(self) -> None:
        """The oldest batch, by an attempt of its run; a refused one is aborted."""
        for batch in self.open()[:1]:
            assignment = self.ledger.start_attempt(batch, run(batch.lease_run), code())
            nothing: dict[str, Any] = {"log": [], "list": []}
            emitted = self.ledger.record_manifests([(assignment, manifest_of(self.topology, assignment, nothing))])[0]
            try:
                self.ledger.commit(self.topology, emitted, nothing)
            except BrokenChain:
                self.ledger.abort("two", batch.txid, "refused")

    def abort(self) -> None:
        if found := self.open():
            self.ledger.abort("two", self.random.choice(found).txid, "why")

    def skip(self) -> None:
        """Of an open batch, or of one that was aborted before."""
        ordinary = [each for each in self.all() if each.kind is BatchKind.ORDINARY]
        if left := [each for each in ordinary if each.status is not BatchStatus.COMMITTED]:
            which = self.random.choice(left)
            try:
                self.ledger.skip("two", which.txid, "why")
            except (BrokenChain, NotItsTurn):
                return
            self.late_skips += which.status is BatchStatus.ABORTED

    def all(self) -> list[Batch]:
        return [self.ledger.batch("two", txid) for txid in range(1, self.ledger.last_txid("two") + 1)]

    def open(self) -> list[Batch]:
        return [each for each in self.all() if not each.status.final]

    def counted(self, stream: str, partition: str) -> int:
        """How many records of a partition are counted or given up: from the first on, each once."""
        final = [each for each in self.all() if each.status is BatchStatus.COMMITTED]
        plans = [each.plan.streams[stream].ranges for each in final if stream in each.plan.streams]
        read = sorted((of[partition]["start"], of[partition]["end"]) for of in plans if partition in of)
        reached = 0
        for start, end in read:
            assert start == reached, f"{stream} {partition}: {read}"
            reached = end
        return reached

    def compare(self) -> None:
        for stream, partition in (("log", "a"), ("log", "b"), ("list", "")):
            self.counted(stream, partition)


def all_go() -> int:
    """All histories; how many late skips they came to."""
    late = 0
    for seed in range(HISTORIES):
        (history := History(seed)).go()
        late += history.late_skips
    return late


@pytest.mark.rule("R3", "R6", "R16")
def test_each_record_of_two_streams_counts_once() -> None:
    assert all_go() > HISTORIES / 5  # a skip of what was aborted before: late


def test_a_skip_that_leaves_the_other_stream_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skip, "carrying_on", lambda left, last: left)
    with pytest.raises(AssertionError, match="list"):
        all_go()
