"""PartitionedLog: append, retention, outage."""

from __future__ import annotations

from pathlib import Path

import pytest

from txbatch import PartitionedLogSpout, TransactionAttempt
from txbatch.spouts.partitioned_log import PartitionedLog

FIRST = TransactionAttempt(1, 0)


@pytest.fixture
def log(tmp_path: Path) -> PartitionedLog:
    return PartitionedLog(tmp_path / "log", segment_records=3)


def kept(log: PartitionedLog) -> list[int]:
    return [int(path.stem) for path in log.segments("a")]


def test_segments_are_named_by_their_first_offset(log: PartitionedLog) -> None:
    log.append("a", "12345")
    log.append("a", "67")
    assert (kept(log), log.start("a"), log.end("a")) == ([0, 3, 6], 0, 7)


@pytest.mark.parametrize(
    ("before", "start", "left"),
    [(0, 0, [0, 3, 6]), (2, 0, [0, 3, 6]), (3, 3, [3, 6]), (5, 3, [3, 6]), (6, 6, [6]), (7, 7, [7]), (99, 7, [7])],
)
def test_retention_forgets_whole_segments(log: PartitionedLog, before: int, start: int, left: list[int]) -> None:
    log.append("a", "1234567")
    assert log.delete_before("a", before) == start
    assert (kept(log), log.end("a")) == (left, 7)
    log.append("a", "89")
    assert log.end("a") == 9
    assert log.start("a") == start


def test_retention_of_nothing(log: PartitionedLog) -> None:
    log.append("a", "")
    assert log.delete_before("a", 5) == 0
    assert log.segments("a") == []


def test_a_plan_says_what_is_gone(log: PartitionedLog) -> None:
    log.append("a", "1234567")
    log.delete_before("a", 6)
    spout = PartitionedLogSpout(log.root)
    assert spout.emit_partition_batch_new(FIRST, "a", None) == {"start": 6, "end": 7}
    gone = spout.emit_partition_batch_new(FIRST, "a", {"start": 0, "end": 2})
    assert gone == {"start": 2, "end": 6, "gone": f"{log.root}/a keeps 6 to 7"}
