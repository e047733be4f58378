"""A call that follows: what goes by is waited out, it ends between two batches, and looks for what is due."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from refusals import refused
from without_spark import records

from txbatch import (
    Count,
    FileSpout,
    Interval,
    IntervalSpout,
    OpaqueState,
    PartitionedLogSpout,
    Stream,
    Topology,
)
from txbatch.cli import cron
from txbatch.core.batch.plan import BatchPlan, Range, Ranges
from txbatch.core.batch.transaction import Batch, BatchStatus, Metadata
from txbatch.core.errors import BadRecord, LeaseHeld, PartitionUnreadable, StaleAttempt, Unavailable
from txbatch.memory.application import MemoryApplication
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.run_locks import MemoryRunLocks
from txbatch.memory.runner import MemoryJob
from txbatch.memory.staging import MemoryStaging
from txbatch.run import follow as following
from txbatch.run.follow import PAUSE_SECONDS, PAUSE_SECONDS_MAX, Arrivals, Clock, follow
from txbatch.run.runner import Runner
from txbatch.run.steps import Steps
from txbatch.spouts.partitioned_log import PartitionedLog

HOUR, DAY = timedelta(hours=1), datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it rested each time."""
    found = list[float]()
    monkeypatch.setattr(following, "_rest", lambda seconds, ended: found.append(seconds))
    return found


def looks(*each: int | Exception) -> Callable[[], Generator[Batch, None, None]]:
    """One look after the other: so many batches, or an error."""
    left = iter(each)

    def look() -> Generator[Batch, None, None]:
        match next(left):
            case int(number):
                yield from (Batch("t", txid, BatchStatus.COMMITTED, {}, "") for txid in range(1, number + 1))
            case error:
                raise error

    return look


def test_what_goes_by_is_waited_out_each_time_longer(rests: list[float]) -> None:
    away = [Unavailable("no server")] * 7
    batches = follow(looks(1, *away, 2, LeaseHeld("another"), 0, BadRecord("bad")), lambda: False)
    found = list[int]()
    with pytest.raises(BadRecord):
        found.extend(batch.txid for batch in batches)
    assert rests == [PAUSE_SECONDS, 1, 2, 4, 8, *[PAUSE_SECONDS_MAX] * 3, PAUSE_SECONDS, 1, PAUSE_SECONDS]
    assert found == [1, 1, 2]


def test_a_follower_goes_on_where_another_took_its_batch(rests: list[float]) -> None:
    """As one does that was cut off from the database: its run is finished by another, by the same name."""
    batches = follow(looks(1, StaleAttempt("attempt 1:1 is not the newest"), 2, BadRecord("bad")), lambda: False)
    found = list[int]()
    with pytest.raises(BadRecord):
        found.extend(batch.txid for batch in batches)
    assert found == [1, 1, 2]


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_it_ends_between_two_batches(rests: list[float], after: int) -> None:
    found = list[int]()
    for batch in follow(looks(5), lambda: len(found) >= after):
        found.append(batch.txid)
    assert found == list(range(1, after + 1))


def test_a_rest_is_over_when_it_is_to_end() -> None:
    following._rest(3600, lambda: True)
    following._rest(0, lambda: False)


@pytest.mark.parametrize(
    ("ranges", "size"),
    [
        ({"a": Range(3, 5), "b": Range(0, 9)}, 11),
        ({"a": Range("x", "y")}, None),
        ({}, None),
    ],
)
def test_the_size_of_a_batch_is_as_its_partitions_count(ranges: dict[str, Range], size: int | None) -> None:
    assert following._size(BatchPlan({"in": Ranges(ranges)})) == size


class Case:
    """A runner of a topology that counts lines, over the ledger in memory."""

    def __init__(self, define: Callable[[Topology], Stream]) -> None:
        self.topology = Topology("lines")
        define(self.topology).group_by("line").persistent_aggregate(OpaqueState("lines"), count=Count())
        self.ledger, self.staging = MemoryLedger(), MemoryStaging()
        self.begin()

    def begin(self) -> None:
        """A new process."""
        steps = Steps(MemoryJob(self.topology), self.ledger, self.staging, MemoryRunLocks())
        self.runner = Runner(steps, MemoryApplication(self.topology, self.staging))

    @property
    def counts(self) -> dict[str, int]:
        return {key[0]: value.value[0] for key, value in self.ledger.rows("lines").items()}


class Lines(PartitionedLogSpout):
    """Is read without Spark."""

    def batch(self, plan: Metadata) -> list[tuple[Any, ...]]:
        return records(PartitionedLogSpout(self.log.root), plan)


class Words(Case):
    """Of a log."""

    def __init__(self, folder: Path) -> None:
        self.log = PartitionedLog(folder / "log")
        self.log.append("1", [])
        super().__init__(lambda topology: topology.new_stream("in", Lines(folder / "log", max_records=2)))


class Days(IntervalSpout):
    """A record of each day; some are not ready."""

    not_ready: frozenset[datetime] = frozenset()

    def initialize_transaction(self, txid: int, prev: Metadata | None, curr: Metadata | None) -> Metadata | None:
        start = datetime.fromisoformat((curr or {})["interval"][0])
        return None if start in self.not_ready else super().initialize_transaction(txid, prev, curr)

    def batch(self, plan: Metadata) -> list[tuple[Any, ...]]:
        start = datetime.fromisoformat(plan["interval"][0])
        return [(start, "day")]


@pytest.fixture
def days(tmp_path: Path) -> Case:
    (tmp_path / "a").touch()
    spout = Days(tmp_path, "at timestamp, line string", time="at")
    return Case(lambda topology: topology.new_stream("in", spout))


def test_what_comes_is_counted_by_the_next_look(tmp_path: Path) -> None:
    case = Words(tmp_path)
    case.log.append("0", ["a", "b", "a"])
    look = Arrivals(case.runner, {})
    assert [batch.txid for batch in look()] == [1, 2]
    assert list(look()) == []
    case.log.append("0", ["c"])
    assert [batch.txid for batch in look()] == [3]
    assert len(case.counts) == 3


def test_less_than_asked_for_waits_for_more_but_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, now = Words(tmp_path), [100.0]
    monkeypatch.setattr(following.time, "monotonic", lambda: now[0])
    look = Arrivals(case.runner, {}, at_least=2, seconds=30)
    assert list(look()) == []
    case.log.append("0", ["a"])
    assert list(look()) == []
    now[0] += 29
    assert list(look()) == []
    now[0] += 1
    assert [batch.txid for batch in look()] == [1]
    case.log.append("0", ["b"])
    assert list(look()) == [], "it waits anew"
    case.log.append("0", ["c"])
    assert [batch.txid for batch in look()] == [2]


def test_an_idle_look_reads_the_ledger_anew_only_when_a_run_has_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that was ever counted is not read twice a second; what another run counts is."""
    case, read = Words(tmp_path), list[str]()
    look = Arrivals(case.runner, {})
    assert list(look()) == []
    heads = MemoryLedger.heads
    monkeypatch.setattr(MemoryLedger, "heads", lambda *given: [read.append("all"), heads(*given)][1])
    assert [list(look()) for _ in range(3)] == [[], [], []]
    assert len(read) == 1
    case.log.append("0", ["a"])
    assert [batch.txid for batch in case.runner.run("another")] == [1]
    read.clear()
    assert [list(look()) for _ in range(3)] == [[], [], []]
    assert len(read) == 1
    case.log.append("0", ["b"])
    assert [batch.txid for batch in look()] == [2]


def test_a_look_that_costs_much_is_made_less_often(rests: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a tenth of the time at most."""
    now = [0.0]

    def costs(*each: float) -> Callable[[], Generator[Batch, None, None]]:
        left = iter(each)

        def look() -> Generator[Batch, None, None]:
            now[0] += next(left)
            yield from ()

        return look

    monkeypatch.setattr(following.time, "process_time", lambda: now[0])
    list(follow(costs(0.02, 0.3, 7.0), lambda: len(rests) == 3))
    assert rests == [PAUSE_SECONDS, pytest.approx(2.7), PAUSE_SECONDS_MAX]


def test_the_first_look_finishes_what_an_earlier_call_left(tmp_path: Path) -> None:
    case = Words(tmp_path)
    case.log.append("0", ["a", "b"])
    left = case.runner.run(until_idle=True)
    assert next(left).txid == 1
    left.close()  # type: ignore[attr-defined]
    tables = case.ledger.tables
    tables.batches["lines", 1] = replace(tables.batches["lines", 1], succeeded=False)
    case.begin()
    assert [batch.txid for batch in Arrivals(case.runner, {})()] == [1]


def after(start: datetime, now: datetime) -> list[Interval]:
    """Three days of March, of which those from a moment on are asked for."""
    every = [Interval(DAY + day * 24 * HOUR, DAY + (day + 1) * 24 * HOUR) for day in range(3)]
    return [each for each in every if each.start >= start]


def test_an_interval_is_counted_when_it_is_over(days: Case) -> None:
    look = Clock(days.runner, {}, after, DAY)
    assert [batch.txid for batch in look()] == [1, 2, 3]
    assert (list(look()), look.since, days.counts) == ([], DAY + 72 * HOUR, {"day": 3})
    days.begin()
    assert [batch.txid for batch in Clock(days.runner, {}, after, DAY)()] == [1, 2, 3], "they are found again"
    assert days.counts == {"day": 3}


def test_an_interval_whose_source_is_not_ready_is_asked_for_again(days: Case) -> None:
    """Those behind it are counted meanwhile."""
    spout = cast(Days, days.topology.streams["in"].spout)
    spout.not_ready = frozenset({DAY + 24 * HOUR})
    look, found = Clock(days.runner, {}, after, DAY), list[int]()
    with pytest.raises(PartitionUnreadable, match=r"lines: the source is not ready for 2026-03-02.*/2026-03-03"):
        found.extend(batch.txid for batch in look())
    assert (days.counts, look.since) == ({"day": 2}, DAY + 24 * HOUR)
    spout.not_ready = frozenset()
    assert [batch.txid for batch in look()] == [3, 2]
    assert (days.counts, list(look())) == ({"day": 3}, [])


@pytest.mark.parametrize(("hours", "many"), [(0, 0), (23, 0), (24, 1), (47, 1), (72, 3)])
def test_days_that_are_over_are_cut(hours: int, many: int) -> None:
    found = cron.over(DAY, DAY + hours * HOUR, "0 0 * * *", "UTC")
    assert found == [Interval(DAY + day * 24 * HOUR, DAY + (day + 1) * 24 * HOUR) for day in range(many)]


def test_where_it_begins_must_be_one_of_its_times() -> None:
    with refused("TX118", "interval"):
        cron.over(DAY + HOUR, DAY + HOUR, "0 0 * * *", "UTC")
    with refused("TX118", "cron"):
        cron.over(DAY, DAY, "never", "UTC")
    with refused("TX118", "zone"):
        cron.over(DAY, DAY, "0 0 * * *", "Nowhere/At All")


def test_files_are_followed_by_their_bytes() -> None:
    topology = Topology("t")
    topology.new_stream("in", FileSpout("/in"))
    plan = BatchPlan.from_json({"format": 2, "streams": {"in": {"partitions": {"a": {"start": 0, "end": 7}}}}})
    assert following._size(plan) == 7
