"""Verify reads many batches by one job, and asks a source by time once for all of them (R24)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from support import LogSpout

from txbatch import Count, OpaqueState, Topology
from txbatch.core.batch.manifest import Manifest, ReadPartition
from txbatch.core.batch.plan import BatchPlan, OfInterval, Ranges
from txbatch.core.batch.transaction import TransactionAttempt
from txbatch.core.corrections.audit import Audit
from txbatch.core.corrections.verify import Again, Compared, Outcome, Recorded
from txbatch.core.errors import Unverifiable
from txbatch.core.protocol import bulk
from txbatch.core.sources.labels import labelled
from txbatch.core.sources.spout import BatchCoordinator, Emitter, Spout
from txbatch.run.verify import Asked, Verifier


class Log(LogSpout):
    """A log whose batches are read together."""

    fusable = True

    def fused(self, plans: Sequence[Any]) -> Any:
        return labelled(plans)


class Days(Spout, BatchCoordinator):
    """Days of a table: each look has another version, which the plans have, too."""

    fields, identity, by_interval, fusable = "word string", {"spout": "Days"}, True, True

    def __init__(self) -> None:
        self.looks, self.seen = 0, "then"

    def coordinator(self) -> BatchCoordinator:
        return self

    def emitter(self) -> Emitter:
        raise AssertionError("planned only")

    @contextmanager
    def one_look(self) -> Iterator[None]:
        self.looks += 1
        self.seen = f"look {self.looks}"
        yield

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        return {"interval": curr_metadata["interval"], "seen": self.seen}

    def fused(self, plans: Sequence[Any]) -> Any:
        return {"all": list(plans)}


@dataclass
class Noted:
    """Emits whatever is asked for, unless a test says that a txid fails; and notes what it was asked for."""

    reads: Callable[[int], int]
    together: list[list[int]] = field(default_factory=list)
    alone: list[int] = field(default_factory=list)
    failing: set[int] = field(default_factory=set)
    removed: list[int] = field(default_factory=list)

    def emit(self, topology: str, txid: int, plan: BatchPlan, position: int) -> Again:
        self.alone.append(txid)
        if txid in self.failing:
            raise Unverifiable("it cannot be read")
        return self._again(topology, txid, plan)

    def emit_bulk(self, topology: str, plans: Mapping[int, tuple[BatchPlan, int]]) -> dict[int, Again]:
        self.together.append(list(plans))
        return {txid: self._again(topology, txid, of) for txid, (of, _) in plans.items() if txid not in self.failing}

    def begin_bulk(self, topology: str, plans: Mapping[int, tuple[BatchPlan, int]]) -> Callable[[], dict[int, Again]]:
        found = self.emit_bulk(topology, plans)
        return lambda: found

    def close(self) -> None:
        """Nothing was begun."""

    def _again(self, topology: str, txid: int, plan: BatchPlan) -> Again:
        read = {
            name: {part: ReadPartition(self.reads(txid), "1") for part in of.ranges}
            for name, of in plan.streams.items()
        }
        manifest = Manifest(topology, TransactionAttempt(txid, 0), "token", "code", "digest", read, {}, {})
        assignment: Any = SimpleNamespace(plan=plan)
        return Again(assignment, manifest, dict, lambda: self.removed.append(txid))


class World:
    """A verifier of some batches, of which the ledger is what a test says."""

    def __init__(self, topology: Topology, plans: Sequence[Any], **books: Any) -> None:
        self.recorded = {
            txid: Recorded(
                topology.name,
                txid,
                txid,
                BatchPlan({"in": plan}),
                {"in": {part: ReadPartition(txid, "1") for part in plan.ranges}},
                frozenset({"words"}),
            )
            for txid, plan in enumerate(plans, 1)
        }
        self.audit = Audit()
        self.emitter = Noted(lambda txid: txid)
        self.compared = list[int]()
        given: Any = SimpleNamespace(
            audit=lambda _: self.audit,
            current=lambda _: dict.fromkeys(self.recorded, False),
            recorded=lambda _, txid: self.recorded[txid],
            foldable=lambda *_: [],
            compare=self._compare,
            states=lambda _: [],
            missing=lambda _: [],
            **books,
        )
        ledger: Any = SimpleNamespace(check_definition=lambda *_: None, upstream=None)
        job: Any = SimpleNamespace(topology=topology, name="job.py", code=None)
        self.verifier = Verifier(job, ledger, given, self.emitter, lambda *_: [])

    def _compare(self, topology: Topology, recorded: Recorded, *_: Any) -> list[Compared]:
        self.compared.append(recorded.txid)
        return [Compared("words", keys=1)]

    def outcomes(self, *txids: int) -> dict[int | None, Outcome | None]:
        return {each.txid: each.outcome for each in self.verifier.verify(Asked(txids)) if each.what == "batch"}


def counting(spout: Spout) -> Topology:
    topology = Topology("t")
    topology.new_stream("in", spout).group_by("word").persistent_aggregate(OpaqueState("words"), count=Count())
    return topology


def ranges(number: int) -> Ranges:
    return Ranges.from_json({"partitions": {part: {"start": number, "end": number + 1} for part in "ab"}})


def of_day(day: int) -> OfInterval:
    interval = [f"2026-01-{day:02}T00:00:00+00:00", f"2026-01-{day + 1:02}T00:00:00+00:00"]
    return OfInterval({"interval": interval, "seen": "then"}, interval)


def test_batches_of_the_same_partitions_are_read_by_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(counting(Log({"a": 9, "b": 9})), [ranges(number) for number in range(9)])
    assert world.outcomes() == dict.fromkeys(range(1, 10), Outcome.EQUAL)
    assert (world.emitter.together, world.emitter.alone) == ([[*range(1, 10)]], [])
    assert world.compared == [*range(1, 10)]
    assert world.emitter.removed == [*range(1, 10)]

    monkeypatch.setattr(bulk, "BATCHES_MAX", 4)
    world = World(counting(Log({"a": 9, "b": 9})), [ranges(number) for number in range(9)])
    assert set(world.outcomes().values()) == {Outcome.EQUAL}
    assert (world.emitter.together, world.emitter.alone) == ([[1, 2, 3, 4], [5, 6, 7, 8]], [9])


def test_a_batch_that_the_job_could_not_read_is_read_by_itself_and_tells_why() -> None:
    world = World(counting(Log({"a": 9, "b": 9})), [ranges(number) for number in range(4)])
    world.emitter.failing = {3}
    assert world.outcomes() == {**dict.fromkeys((1, 2, 4), Outcome.EQUAL), 3: Outcome.UNVERIFIABLE}
    assert (world.emitter.together, world.emitter.alone) == ([[1, 2, 3, 4]], [3])


def test_what_needs_no_reading_is_in_no_job() -> None:
    world = World(counting(Log({"a": 9, "b": 9})), [ranges(number) for number in range(5)])
    world.recorded[2] = replace(world.recorded[2], skipped=True, reason="poison")
    world.audit = Audit(of={4: ["its records are none"]})
    found = {1: Outcome.EQUAL, 2: Outcome.SKIPPED, 3: Outcome.EQUAL, 4: Outcome.DIFFERENT, 5: Outcome.EQUAL}
    assert world.outcomes() == found
    assert (world.emitter.together, world.emitter.alone) == ([[1, 3, 5]], [])


def test_a_version_restated_since_the_job_is_read_by_itself() -> None:
    world = World(counting(Log({"a": 9, "b": 9})), [ranges(number) for number in range(3)])
    findings = world.verifier.verify(Asked())
    assert next(findings).txid == 1
    before = world.recorded[2]
    world.recorded[2] = replace(before, read={"in": {part: ReadPartition(7, "1") for part in "ab"}})
    world.emitter.reads = lambda txid: 7
    assert [each.outcome for each in findings if each.what == "batch"] == [Outcome.EQUAL, Outcome.EQUAL]
    assert (world.emitter.alone, world.emitter.removed.count(2)) == ([2], 2)


def test_a_source_by_time_is_looked_at_once_for_all_intervals_of_a_job() -> None:
    spout = Days()
    world = World(counting(spout), [of_day(day) for day in range(1, 20)])
    assert set(world.outcomes().values()) == {Outcome.EQUAL}
    assert spout.looks == 1
    assert (world.emitter.together, world.emitter.alone) == ([[*range(1, 20)]], [])


def test_an_interval_with_late_records_is_read_once_more_as_it_was_planned() -> None:
    world = World(counting(Days()), [of_day(day) for day in range(1, 4)])
    reads = iter([1, 5, 3, 2])  # together, the second day has three records more; then as it was planned
    world.emitter.reads = lambda _: next(reads)
    assert world.outcomes() == {1: Outcome.EQUAL, 2: Outcome.LATE, 3: Outcome.EQUAL}
    assert (world.emitter.together, world.emitter.alone) == ([[1, 2, 3]], [2])


def test_a_spout_that_cannot_fuse_after_all_has_its_batches_read_one_by_one() -> None:
    class Broken(Log):
        def fused(self, plans: Sequence[Any]) -> Any:
            raise KeyError("partitions")

    world = World(counting(Broken({"a": 9, "b": 9})), [ranges(number) for number in range(3)])
    assert world.outcomes() == dict.fromkeys((1, 2, 3), Outcome.EQUAL)
    assert (world.emitter.together, world.emitter.alone) == ([], [1, 2, 3])
