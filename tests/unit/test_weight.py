"""When a train of batches is full: none has more than one job should read, and a pass over all is not made more often for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from txbatch import Count, FileSpout, IntervalSpout, OpaqueState, Topology
from txbatch.core.batch.plan import BatchPlan, OfInterval, Range, Ranges
from txbatch.core.batch.transaction import Run
from txbatch.core.protocol.bulk import BYTES_MAX
from txbatch.core.protocol.bulk_size import PARTITIONS_MAX, PLANS_BYTES_MAX, JobSize
from txbatch.core.protocol.planning_ahead import initialize_many
from txbatch.memory.ledger import MemoryLedger


def files(**sizes: int) -> Ranges:
    return Ranges({name: Range(0, size) for name, size in sizes.items()})


def by_time(number: int, named: Mapping[str, int]) -> OfInterval:
    start = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(number)
    interval = [start.isoformat(), (start + timedelta(1)).isoformat()]
    return OfInterval({"interval": interval, "files": named}, interval)


@pytest.fixture
def topology() -> Topology:
    """One stream of files, and one by time."""
    topology = Topology("t")
    topology.new_stream("files", FileSpout("/in"))
    topology.new_stream("times", IntervalSpout("/in", "at timestamp, line string", time="at"))
    return topology


def until_full(topology: Topology, *plans: BatchPlan) -> int:
    """After how many it is full."""
    weight = JobSize(topology)
    for number, plan in enumerate(plans, 1):
        weight.add(plan)
        if weight.full:
            return number
    return 0


def test_a_huge_batch_among_small_ones_ends_the_train(topology: Topology) -> None:
    sizes = [1, 1, BYTES_MAX, 1]
    assert until_full(topology, *(BatchPlan({"files": files(a=size)}) for size in sizes)) == 3


def test_a_pass_by_time_counts_once_and_beside_other_files_alone(topology: Topology) -> None:
    """By itself it would only be made more often by shorter trains."""
    times = [by_time(number, {"a": BYTES_MAX}) for number in range(9)]
    assert until_full(topology, *(BatchPlan({"times": each}) for each in times)) == 0
    assert until_full(topology, *(BatchPlan({"times": each, "files": files(a=1)}) for each in times)) == 1
    half = [by_time(number, {"a": BYTES_MAX // 2}) for number in range(9)]
    both = (BatchPlan({"times": each, "files": files(a=BYTES_MAX // 6)}) for each in half)
    assert until_full(topology, *both) == 4


def test_a_train_has_no_more_partitions_than_it_should(topology: Topology) -> None:
    plan = BatchPlan({"files": files(**{f"{number}": 1 for number in range(1_000)})})
    assert until_full(topology, *[plan] * 400) == PARTITIONS_MAX // 1_000


def test_plans_that_name_many_files_each_make_a_shorter_train(topology: Topology) -> None:
    named = {f"part-{number:05}-0b1c2d3e-4f50-6172-8394.csv": 10**6 for number in range(10_000)}
    length = until_full(topology, *[BatchPlan({"times": by_time(0, named)})] * 400)
    assert 50 < length < 200
    assert length * 10_000 * len("part-00000-0b1c2d3e-4f50-6172-8394.csv") < PLANS_BYTES_MAX


def test_a_file_of_ten_gigabytes_among_small_ones_is_planned_so(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02}").write_text("a line")
    os.truncate(tmp_path / "07", 10**10)
    topology = Topology("t")
    stream = topology.new_stream("in", FileSpout(tmp_path, files_per_batch=1))
    stream.group_by("line").persistent_aggregate(OpaqueState("s"), n=Count())
    ledger = MemoryLedger()
    ledger.register(topology, "jobs/job.py")
    runs, lengths = [Run(f"r{number}") for number in range(20)], list[int]()
    while sum(lengths) < 20:
        behind = range(1, sum(lengths) + 1)
        lengths.append(len(initialize_many(ledger, topology, runs[sum(lengths) :], behind)))
    assert lengths == [8, 12]
