"""A thousand tiny batches: planned in trains, committed one by one in their order, in a time that grows with their number."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sizes import some_of
from unit.test_fused import Case

from txbatch import Count, FileSpout, Interval, OpaqueState, Topology
from txbatch.core.batch.transaction import Run
from txbatch.core.protocol.planning_ahead import initialize_many
from txbatch.memory.ledger import MemoryLedger

BATCHES = some_of(1_000, 10_000)


def test_tiny_batches_are_planned_in_trains(tmp_path: Path) -> None:
    """In a time that grows with their number: each train is planned by one look."""
    topology = Topology("t")
    for number in range(BATCHES):
        (tmp_path / f"{number:05}").write_text("a")
    stream = topology.new_stream("in", FileSpout(tmp_path, files_per_batch=1))
    stream.group_by("line").persistent_aggregate(OpaqueState("s"), n=Count())
    ledger, done, trains, began = MemoryLedger(), 0, 0, time.process_time()
    ledger.register(topology, "jobs/job.py")
    runs = [Run(f"r{number}") for number in range(BATCHES + 1)]
    while found := initialize_many(ledger, topology, runs[done : done + 400], range(1, done + 1), 400):
        assert found[0].txid == done + 1
        done, trains = done + len(found), trains + 1
    assert (done, trains) == (BATCHES, -(-BATCHES // 400))
    assert time.process_time() - began < 60


def test_a_thousand_tiny_batches_are_committed_by_few_jobs(tmp_path: Path) -> None:
    """A thousand: the twin in memory copies all that it has for each transaction."""
    case: Any = Case(tmp_path)
    start = datetime(2020, 1, 1, tzinfo=UTC)
    starts = [start + timedelta(hours=number) for number in range(1_000)]
    done = [batch.txid for batch in case.runner.run_each([Interval(at, at + timedelta(hours=1)) for at in starts])]
    assert done == list(range(1, 1_001))
    assert case.count == 1_000
    assert [len(each) for each in case.application.together] == [16, 64, 256, 400, 264]
    assert case.application.alone == []
