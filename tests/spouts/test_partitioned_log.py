"""PartitionedLog: append, retention, outage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from txbatch import OpaquePartitionedLogSpout, PartitionedLogSpout, TransactionAttempt
from txbatch.core.errors import BadRecord, RecordsGone, SourceCutBack, SourceMissing, TransientError
from txbatch.core.sources.spout import PartitionedCoordinator
from txbatch.formats import listing
from txbatch.spouts.log_records import Place, records_of, segments_of
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


@pytest.mark.parametrize("name", ["a.log", "a/orders.log", "a/0.txt", "a/-1.log"])
def test_files_of_another_layout_are_told(tmp_path: Path, name: str) -> None:
    """Else they are nothing new, for good."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("a\n")
    log = PartitionedLog(tmp_path)
    with pytest.raises(
        TransientError, match=f"/{name} is no segment of a partitioned log: it has a folder for each partition"
    ):
        [log.end(partition) for partition in log.partitions()]


def test_segments_go_by_their_offsets_however_they_are_written(tmp_path: Path) -> None:
    for first in (0, 5, 10):
        (tmp_path / f"{first}.log").write_text("a\n" * 5)
    assert [path.name for path in PartitionedLog(tmp_path.parent).segments(tmp_path.name)] == [
        "0.log",
        "5.log",
        "10.log",
    ]


def test_a_plan_says_what_is_gone(log: PartitionedLog) -> None:
    log.append("a", "1234567")
    log.delete_before("a", 6)
    spout = PartitionedLogSpout(log.root)
    assert spout.emit_partition_batch_new(FIRST, "a", None) == {"start": 6, "end": 7}
    gone = spout.emit_partition_batch_new(FIRST, "a", {"start": 0, "end": 2})
    assert gone == {"start": 2, "end": 6, "gone": f"{log.root}/a keeps 6 to 7"}


def test_a_record_that_is_no_text_is_named_by_segment_and_offset(log: PartitionedLog) -> None:
    log.append("a", "1234")
    segment = log.segments("a")[1]
    segment.write_bytes(b"4\no\0\ncaf\xe9\n")

    def read(start: int, end: int, *, nul: bool = False) -> list[str]:
        row = {"partition": "a", "start": start, "end": end, "segments": [str(path) for path in log.segments("a")]}
        return [line for _, line in records_of(row, nul, Place())]

    assert log.end("a") == 6
    assert read(3, 5, nul=True) == ["4", "o\0"]
    with pytest.raises(BadRecord, match=rf"{segment} record 4 holds U\+0000, as UTF-16 does; .* nul=True"):
        read(3, 5)
    with pytest.raises(BadRecord, match=rf"{segment} record 5: the byte 0xe9 is not UTF-8"):
        read(5, 6)


@pytest.mark.parametrize("link", ["b", "b/00000000000000000000.log"])
def test_a_link_of_another_user_out_of_the_log_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    """A partition or a segment: who may write there would read by it what the tasks may."""
    secret = PartitionedLog(tmp_path / "secrets")
    secret.append("b", ["password"])
    root = tmp_path / "log"
    (root / link).parent.mkdir(parents=True)
    (root / link).symlink_to(secret.root / link)
    assert PartitionedLogSpout(root).log.end("b") == 1
    monkeypatch.setattr(listing, "_owners", lambda link: (4711, 4712))
    with pytest.raises(TransientError, match=rf"the link .*/{link} leads out of .*/log to .*, which another user owns"):
        PartitionedLogSpout(root).log.end("b")
    assert PartitionedLogSpout(root, foreign_links=True).log.end("b") == 1


def ranges(log: PartitionedLog, *bounds: tuple[int, int]) -> list[list[tuple[int, str]]]:
    """The records of several ranges, read one after the other by one task."""
    place, found = Place(), []
    for start, end in bounds:
        segments = segments_of(log.segments("a"), start, end)
        row = {"partition": "a", "start": start, "end": end, "segments": segments}
        found.append(list(records_of(row, False, place)))
    return found


@pytest.mark.parametrize(
    "bounds",
    [
        [(0, 2), (2, 3), (3, 7), (7, 8)],
        [(0, 8), (0, 8)],
        [(4, 5), (5, 5), (5, 6), (1, 4)],
        [(0, 5), (3, 8)],
        [(7, 8), (0, 1)],
        [(8, 8), (0, 0), (6, 8)],
    ],
)
def test_ranges_that_one_task_reads_are_what_each_is_alone(log: PartitionedLog, bounds: list[tuple[int, int]]) -> None:
    log.append("a", ["", *"1é345", "", "7"])
    together = ranges(log, *bounds)
    assert together == [ranges(log, each)[0] for each in bounds]
    assert [[offset for offset, _ in each] for each in together] == [list(range(*each)) for each in bounds]


def test_a_range_behind_another_whose_records_are_gone_is_refused(log: PartitionedLog) -> None:
    log.append("a", "12345678")
    log.segments("a")[1].unlink()
    assert ranges(log, (0, 3), (6, 8))
    for bounds in ([(0, 2), (2, 4)], [(0, 3), (3, 6)], [(6, 8), (4, 7)], [(0, 3), (6, 9)]):
        with pytest.raises(RecordsGone, match="are gone since they were planned"):
            ranges(log, *bounds)


@pytest.mark.parametrize("kind", [PartitionedLogSpout, OpaquePartitionedLogSpout])
def test_400_plans_of_one_look_ask_each_partition_once(
    log: PartitionedLog, monkeypatch: pytest.MonkeyPatch, kind: type[PartitionedLogSpout]
) -> None:
    """Also a partition that is away, of an opaque spout; what comes meanwhile is for the next look."""
    looks = Counter[str]()
    segments, partitions = PartitionedLog.segments, PartitionedLog.partitions

    def counted(self: PartitionedLog, partition: str) -> list[Path]:
        looks[partition] += 1
        return segments(self, partition)

    def listed(self: PartitionedLog) -> list[str]:
        looks["listing"] += 1
        return partitions(self)

    for name in "abc":
        log.append(name, [*"12"] * 400)
    if kind is OpaquePartitionedLogSpout:
        log.take_away("b")
    monkeypatch.setattr(PartitionedLog, "segments", counted)
    monkeypatch.setattr(PartitionedLog, "partitions", listed)
    coordinator = PartitionedCoordinator(kind(log.root, max_records=2))
    with coordinator.one_look():
        for txid in range(1, 401):
            plan = coordinator.initialize_transaction(txid, None, None)
            assert plan is not None
            assert set(plan["partitions"]) == ({"a", "c"} if "unreadable" in plan else {"a", "b", "c"})
            coordinator.offsets = {**coordinator.offsets, **plan["partitions"]}
            log.append("a", "3")
        assert plan["partitions"]["a"] == {"start": 798, "end": 800}
    assert (looks["listing"], looks["a"], looks["b"], looks["c"]) == (1, 1, 1, 1)
    assert (plan.get("unreadable") is None) == (kind is PartitionedLogSpout)
    found = coordinator.initialize_transaction(401, None, None)
    assert found is not None
    assert found["partitions"]["a"] == {"start": 800, "end": 802}


def plan_of(spout: PartitionedLogSpout, offsets: Mapping[str, Any]) -> Any:
    coordinator = PartitionedCoordinator(spout)
    coordinator.offsets = offsets
    return coordinator.initialize_transaction(2, None, None)


@pytest.mark.parametrize("kind", [PartitionedLogSpout, OpaquePartitionedLogSpout])
def test_a_partition_that_is_deleted_hidden_or_made_anew_is_told(
    log: PartitionedLog, kind: type[PartitionedLogSpout]
) -> None:
    """Or refused, if the spout says so; a log that was made anew and has fewer records is refused in any case."""

    class Refusing(kind):  # type: ignore[misc, valid-type]
        vanish = "refuse"

    for name in "ab":
        log.append(name, "1234")
    known = {name: {"start": 0, "end": 3} for name in "ab"}
    (log.root / "b").rename(log.root.parent / "b")
    found = plan_of(kind(log.root), known)
    assert (found["missing"], [*found["partitions"]]) == (["b"], ["a"])
    with pytest.raises(SourceMissing, match="listed no more: b; give them back"):
        plan_of(Refusing(log.root), known)
    (log.root.parent / "b").rename(log.root / "b")
    for spout in (kind(log.root), Refusing(log.root)):
        found = plan_of(spout, known)
        assert ("missing" in found, [*found["partitions"]]) == (False, ["a", "b"])
    (log.root / "b" / "00000000000000000000.log").write_text("1\n")
    (log.root / "b" / "00000000000000000003.log").unlink()
    for spout in (kind(log.root), Refusing(log.root)):
        with pytest.raises(SourceCutBack, match="'b' went backwards"):
            plan_of(spout, known)
