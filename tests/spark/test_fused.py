"""Several attempts by one job of the driver: each one's manifest and partials are what it alone would stage."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from every_aggregate import aggregates
from pyspark.sql import SparkSession
from spark.emitting import Emitter

from txbatch import (
    Avg,
    Count,
    DistinctSketch,
    FileSpout,
    Interval,
    IntervalSpout,
    Max,
    OpaquePartitionedLogSpout,
    OpaqueState,
    PartitionedLogSpout,
    StaticState,
    Sum,
    Topology,
    TransactionalState,
    session_window,
    window,
)
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Metadata, Run
from txbatch.core.protocol import planning
from txbatch.core.protocol.ledger import Head
from txbatch.core.records.time_buckets import micros_of
from txbatch.launch import driver as module
from txbatch.spouts.partitioned_log import PartitionedLog

NEW_YORK = ZoneInfo("America/New_York")


@pytest.fixture
def one_job(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many batches each job of several had."""
    jobs: list[int] = []
    stage = module.stage

    def counted(spark: SparkSession, topology: Topology, attempts: Sequence[Any]) -> Any:
        jobs.append(len(attempts))
        return stage(spark, topology, attempts)

    monkeypatch.setattr(module, "stage", counted)
    return jobs


def planned(
    topology: Topology, intervals: Sequence[Interval | None], before: Sequence[Metadata] = ()
) -> list[Metadata]:
    """The plans of batches one after the other, behind those before."""
    plans: list[Metadata] = []
    offsets: dict[str, Any] = {}
    for plan in before:
        for name, entry in plan["streams"].items():
            offsets = {**offsets, name: {**offsets.get(name, {}), **entry.get("partitions", {})}}
    for txid, interval in enumerate(intervals, 1):
        run = Run(f"run {txid}", interval=interval)
        plan = planning.plan_batch(topology, Head(topology.name, txid, None, (), None, offsets), run)
        assert plan is not None
        plans.append(plan)
        for name, entry in plan["streams"].items():
            offsets = {**offsets, name: {**offsets.get(name, {}), **entry.get("partitions", {})}}
    return plans


def days(first: date, number: int, zone: ZoneInfo = NEW_YORK) -> list[Interval]:
    """Days of a zone."""
    at = [datetime.combine(first + timedelta(n), datetime.min.time(), zone).astimezone(UTC) for n in range(number + 1)]
    return [Interval(start, end) for start, end in pairwise(at)]


def sales(root: Path, **options: Any) -> Topology:
    """By shop, as one value of all, and by shop where some are removed."""
    topology = Topology("sales")
    spout = IntervalSpout(root, "sale timestamp, shop string, price int", time="sale", **options)
    stream = topology.new_stream("in", spout)
    stream.each(lambda record: (record["price"] or 0) * 2, "twice bigint").group_by("shop").persistent_aggregate(
        TransactionalState("sales"), sales=Count(), turnover=Sum("price"), mean=Avg("price"), most=Max("twice")
    )
    stream.persistent_aggregate(OpaqueState("all"), sales=Count(), turnover=Sum("price"))
    stream.group_by("shop").persistent_aggregate(OpaqueState("open"), remove="price is null", sales=Count())
    return topology


def rows_of(intervals: Sequence[Interval], each: int = 3) -> list[tuple[datetime, str, int | None]]:
    """Records at both ends of each interval and between them, and some outside all."""
    found: list[tuple[datetime, str, int | None]] = []
    for number, interval in enumerate(intervals):
        inside = [interval.start, interval.end - timedelta(microseconds=1), interval.start + timedelta(hours=5)]
        found += [(at, f"shop {n % 3}", None if (n + number) % 5 == 0 else n) for n, at in enumerate(inside * each)]
    before, after = intervals[0].start - timedelta(seconds=1), intervals[-1].end
    return [*found, (before, "outside", 1), (after, "outside", 1)]


def write_csv(file: Path, rows: Sequence[tuple[datetime, str, int | None]]) -> None:
    lines = [f"{at.isoformat()},{shop},{'' if price is None else price}" for at, shop, price in rows]
    file.write_text("\n".join(["sale,shop,price", *lines]) + "\n")


OPTIONS: Mapping[str, Any] = {"options": {"header": True, "null_value": ""}}


@pytest.mark.rule("R5", "R7")
@pytest.mark.parametrize("format_", ["csv", pytest.param("parquet", marks=pytest.mark.whole)])
def test_days_together_are_days_alone(emitter: Emitter, tmp_path: Path, one_job: list[int], format_: str) -> None:
    """Across both changes of the clock, with a day without records and one that is not asked for."""
    root = tmp_path / "in"
    root.mkdir()
    intervals = [*days(date(2013, 3, 9), 3), *days(date(2013, 11, 2), 3)]
    rows = rows_of([each for number, each in enumerate(intervals) if number != 4])
    if format_ == "csv":
        write_csv(root / "a.csv", rows[::2])
        write_csv(root / "b.csv", rows[1::2])
    else:
        types = [pa.timestamp("us", "UTC"), pa.string(), pa.int32()]
        columns = [pa.array(values, type_) for values, type_ in zip(zip(*rows, strict=True), types, strict=True)]
        pq.write_table(pa.table(columns, names=["sale", "shop", "price"]), root / "a.parquet")
    topology = sales(root, **({"format": "parquet"} if format_ == "parquet" else OPTIONS))
    plans = planned(topology, intervals)
    del plans[1]
    manifests = emitter.compare(topology, plans)
    assert one_job == [5]
    assert [each.records for each in manifests] == [9, 9, 9, 0, 9]


@pytest.mark.rule("R25")
def test_what_is_ahead_of_a_batch_is_counted_by_when_that_was_planned(
    emitter: Emitter, tmp_path: Path, one_job: list[int]
) -> None:
    """By one job, which has batches that were planned at several times, and by a job for each."""
    (tmp_path / "in").mkdir()
    intervals = days(date(2013, 3, 9), 3)
    write_csv(tmp_path / "in" / "a.csv", rows_of(intervals))
    topology = Topology("ahead")
    spout = IntervalSpout(tmp_path / "in", "sale timestamp, shop string, price int", time="sale", **OPTIONS)
    stream = topology.new_stream("in", spout).with_watermark("sale", "1 hour")
    stream.group_by("shop").persistent_aggregate(OpaqueState("shops"), sales=Count())
    ends = [micros_of(each.end) for each in intervals]
    found = []
    for planned_at in (ends, [ends[0], ends[1] - 1, ends[2] - 2], [ends[2]] * 3, [ends[0] - 2] * 3):
        emitter.planned_at = planned_at
        manifests = emitter.compare(topology, planned(topology, intervals))
        found.append([each.streams["in"][""].ahead for each in manifests])
    assert found == [[0, 0, 0], [0, 0, 3], [0, 0, 0], [3, 9, 9]]
    assert one_job == [3] * 4


@pytest.mark.rule("R25")
def test_each_batch_finds_late_what_its_own_plan_says(emitter: Emitter, tmp_path: Path, one_job: list[int]) -> None:
    """Of windows that slide each by itself; a state by no window says nothing. What is left out counts nowhere, and what is
    kept aside as rows of its batch.
    """
    (tmp_path / "in").mkdir()
    intervals = days(date(2013, 3, 9), 3)
    write_csv(tmp_path / "in" / "a.csv", rows_of(intervals))

    def late(policy: str, slide: str) -> Topology:
        topology = Topology("late")
        spout = IntervalSpout(tmp_path / "in", "sale timestamp, shop string, price int", time="sale", **OPTIONS)
        stream = topology.new_stream("in", spout).with_watermark("sale", "1 hour", late=policy)
        by = window("sale", "1 hour", slide=slide)
        stream.group_by(by, "shop").persistent_aggregate(OpaqueState("hours"), sales=Count())
        stream.group_by("shop").persistent_aggregate(OpaqueState("shops"), sales=Count())
        return topology

    topology = late("merge", "30 minutes")
    first, *plans = planned(topology, intervals)
    marks = [intervals[1].start + timedelta(hours=5.5), intervals[2].end]
    fixed = [
        replace(BatchPlan.from_json(plan), watermark={"in": micros_of(mark)}).to_json()
        for plan, mark in zip(plans, marks, strict=True)
    ]
    manifests = emitter.compare(topology, [first, *fixed])
    assert one_job == [3]
    assert [each.streams["in"][""].latest for each in manifests] == [micros_of(each.end) - 1 for each in intervals]
    assert [(each.states["hours"].kept, each.states["hours"].late) for each in manifests] == [
        (18, 0),
        (18, 9),
        (18, 15),
    ]
    assert [each.states["shops"].late for each in manifests] == [None, None, None]
    whole = [emitter.rows(folder, 0, 2) for folder in emitter.compared]
    dropping = late("drop", "30 minutes")
    manifests = emitter.compare(dropping, [first, *fixed])
    assert [(each.states["hours"].kept, each.states["hours"].late) for each in manifests] == [(18, 0), (9, 9), (3, 15)]
    counted = [
        {key: row for key, row in rows.items() if n == 0 or key[0] + timedelta(hours=1) > marks[n - 1]}
        for n, rows in enumerate(whole)
    ]
    assert [emitter.rows(folder, 0, 2) for folder in emitter.compared] == counted
    siding = late("side", "1 hour")
    told = [each.states for each in emitter.compare(siding, [first, *fixed])]
    assert one_job == [3, 3, 3]
    assert [(each["hours"].kept, each["hours"].late, each["hours_late"].rows) for each in told] == [
        (9, 0, 0),
        (6, 3, 3),
        (0, 9, 9),
    ]
    rows = emitter.rows(emitter.compared[1], 1, 3)
    assert {key[0] for key in rows} == {2}
    assert all(row[-1] + timedelta(hours=1) <= marks[0] for row in rows.values())


@pytest.mark.rule("R27")
def test_sessions_are_those_of_each_batch_by_itself(emitter: Emitter, tmp_path: Path, one_job: list[int]) -> None:
    (tmp_path / "in").mkdir()
    intervals = days(date(2013, 3, 9), 3)
    write_csv(tmp_path / "in" / "a.csv", rows_of(intervals))
    topology = Topology("visits")
    spout = IntervalSpout(tmp_path / "in", "sale timestamp, shop string, price int", time="sale", **OPTIONS)
    grouped = topology.new_stream("in", spout).group_by(session_window("sale", "10 days"), "shop")
    grouped.persistent_aggregate(OpaqueState("visits"), sales=Count())
    emitter.compare(topology, planned(topology, intervals))
    assert one_job == [3]


def test_dates_and_intervals_of_any_length(emitter: Emitter, tmp_path: Path, one_job: list[int]) -> None:
    """A date of Parquet lies in days of UTC; weeks and days beside each other, also before 1970."""
    start = date(1969, 12, 20)
    table = pa.table(
        {
            "day": pa.array([start + timedelta(n // 2) for n in range(60)], pa.date32()),
            "shop": [f"shop {n % 4}" for n in range(60)],
        }
    )
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "a.parquet")
    topology = Topology("dates")
    spout = IntervalSpout(
        tmp_path / "in",
        "day date, shop string",
        time="day",
        format="parquet",
        plausible=("1960-01-01", "2000-01-01"),
    )
    topology.new_stream("in", spout).group_by("shop").persistent_aggregate(TransactionalState("d"), n=Count())
    ends = [0, 1, 8, 9, 16, 23]
    moments = [datetime(1969, 12, 20, tzinfo=UTC) + timedelta(each) for each in ends]
    intervals = [Interval(*each) for each in pairwise(moments)]
    manifests = emitter.compare(topology, planned(topology, intervals))
    assert [each.records for each in manifests] == [2, 14, 2, 14, 14]
    assert one_job == [5]


def words(root: Path, size: int) -> Topology:
    topology = Topology("words")
    stream = topology.new_stream("in", FileSpout(root, files_per_batch=size))
    stream.flat_map("split(line, ' ')", "word string").group_by("word").persistent_aggregate(
        OpaqueState("words"), count=Count()
    )
    pairs = [("one line", "first"), ("x", "other")]
    known = topology.new_static_state(StaticState("known", pairs, "line string, name string"))
    stream.state_query(known, "line", fields=["name"], how="inner").group_by("line", "name").persistent_aggregate(
        OpaqueState("lines"), count=Count()
    )
    return topology


@pytest.mark.rule("R5", "R7")
def test_files_together_are_files_alone(emitter: Emitter, tmp_path: Path, one_job: list[int]) -> None:
    """Whatever they are called, also compressed ones, and one that is as good as empty."""
    root = tmp_path / "in [a] %20 ü"
    root.mkdir()
    for number, name in enumerate(["a b.txt", "c%20d", "e", "f*.txt", "g", "h{1}", "i#j"]):
        (root / name).write_text("one line\n" + "a word and a word\n" * number)
    (root / "k.gz").write_bytes(gzip.compress(b"one line\nof a word"))
    (root / "l").write_bytes(b"\xef\xbb\xbf")
    topology = words(root, 2)
    manifests = emitter.compare(topology, planned(topology, [None] * 5))
    assert one_job == [5]
    assert [each.records for each in manifests] == [3, 7, 11, 9, 0]


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.whole)])
def test_every_aggregate_together_is_what_it_is_alone(emitter: Emitter, tmp_path: Path, part: int) -> None:
    """Each in one state by key, and as one value of all; doubles are of values that any order sums alike."""
    some = dict(list(aggregates().items())[part::2])
    values = [
        "get_json_object(line, '$.k') k",
        "cast(get_json_object(line, '$.n') as bigint) n",
        "cast(get_json_object(line, '$.n') as decimal(10,2)) price",
        "cast(get_json_object(line, '$.n') as double) x",
        "cast(get_json_object(line, '$.n') as bigint) > 3 flag",
        "get_json_object(line, '$.w') word",
    ]
    fields = "k string, n bigint, price decimal(10,2), x double, flag boolean, word string"
    root = tmp_path / "in"
    root.mkdir()
    for file in range(2):
        lines = [f'{{"k": "{"ab"[n % 2]}", "n": {n * 7 % 11}, "w": "w{n % 4}"}}' for n in range(file * 4, 20 + file)]
        (root / f"{file}").write_text("\n".join([*lines, '{"k": "a"}']) + "\n")
    topology = Topology("every")
    stream = topology.new_stream("in", FileSpout(root, files_per_batch=1))
    made = stream.map([each.rpartition(" ")[0] for each in values], fields)
    made.group_by("k").persistent_aggregate(OpaqueState("every"), **some)
    made.persistent_aggregate(OpaqueState("all"), **some)
    made.filter("k = 'none'").persistent_aggregate(OpaqueState("none"), **some)
    emitter.compare(topology, planned(topology, [None] * 2))


@pytest.mark.rule("R5")
def test_a_poisoned_day_fails_alone_by_its_own_error(emitter: Emitter, tmp_path: Path, one_job: list[int]) -> None:
    intervals = days(date(2013, 1, 1), 4)
    write_csv(tmp_path / "a.csv", rows_of(intervals))
    with (tmp_path / "a.csv").open("a") as file:
        file.write(f"{(intervals[2].start + timedelta(hours=1)).isoformat()},shop,seven\n")
    topology = sales(tmp_path, pattern="*.csv", **OPTIONS)
    plans = planned(topology, intervals)
    together, alone = emitter.together(topology, plans), emitter.alone(topology, plans)
    assert [each.read_error() for each in together] == [each.read_error() for each in alone]
    assert [each.read_error() is None for each in together] == [True, True, False, True]
    good = [0, 1, 3]
    assert [emitter.staged(topology, together[n]) for n in good] == [emitter.staged(topology, alone[n]) for n in good]
    assert one_job == [4, 2, 2]


def test_a_file_that_no_batch_can_read_is_not_read_for_each(
    emitter: Emitter, tmp_path: Path, one_job: list[int]
) -> None:
    intervals = days(date(2013, 1, 1), 16)
    write_csv(tmp_path / "a.csv", rows_of(intervals, each=1))
    with (tmp_path / "a.csv").open("a") as file:
        file.write("yesterday,shop,7\n")
    topology = sales(tmp_path, pattern="*.csv", **OPTIONS)
    together = emitter.together(topology, planned(topology, intervals))
    assert one_job == [16, 8, 4, 2, 2]
    errors = [error["message"] for each in together if (error := each.read_error())]
    assert len(errors) == 2
    assert all("'yesterday' is no timestamp" in each for each in errors)


@pytest.mark.rule("R5")
def test_an_attempt_that_is_superseded_meanwhile_is_left_out(
    emitter: Emitter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    intervals = days(date(2013, 1, 1), 3)
    write_csv(tmp_path / "a.csv", rows_of(intervals))
    topology = sales(tmp_path, pattern="*.csv", **OPTIONS)
    driver, folders = emitter.folders(topology, planned(topology, intervals))
    stage = module.stage

    def overtaken(*given: Any) -> Any:
        staged = stage(*given)
        folders[1].write_heartbeat(folders[1].superseded("2:2"))
        return staged

    monkeypatch.setattr(module, "stage", overtaken)
    driver.emit_bulk(folders)
    assert [each.said_something() for each in folders] == [True, False, True]
    assert [folders[n].read_manifest().attempt.txid for n in (0, 2)] == [1, 3]


def test_too_many_keys_for_the_driver_are_emitted_by_fewer(
    emitter: Emitter, tmp_path: Path, one_job: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    intervals = days(date(2013, 1, 1), 4)
    write_csv(tmp_path / "a.csv", rows_of(intervals))
    topology = sales(tmp_path, pattern="*.csv", **OPTIONS)
    monkeypatch.setattr("txbatch.spark.bulk.ROWS_MAX", 6)
    plans = planned(topology, intervals)
    emitter.compare(topology, plans)
    assert one_job == [4, 2, 2]


@pytest.mark.parametrize(
    "format_", [pytest.param("by rows", marks=pytest.mark.whole), "by bytes", "by bytes of sketches"]
)
def test_once_batches_were_too_many_the_same_driver_begins_with_fewer(
    emitter: Emitter, tmp_path: Path, one_job: list[int], monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    """Of the first batches one has no records, and one as many keys as the others together."""
    (tmp_path / "in").mkdir()
    for number, words in enumerate(["a b", "c d", "", "e f g h", "a", "b"]):
        (tmp_path / "in" / f"{number}").write_text(f"{words}\n")
    topology = Topology("t")
    stream = topology.new_stream("in", FileSpout(tmp_path / "in", files_per_batch=1))
    split = stream.flat_map("filter(split(line, ' '), word -> word <> '')", "word string")
    values = {"words": DistinctSketch("word")} if format_ == "by bytes of sketches" else {"words": Count()}
    split.group_by("word").persistent_aggregate(OpaqueState("words"), **values)
    bound = {"by rows": ("ROWS_MAX", 5), "by bytes": ("PARTIALS_BYTES_MAX", 5 * 112)}.get(format_)
    name, most = bound or ("PARTIALS_BYTES_MAX", 5 * 17)
    monkeypatch.setattr(f"txbatch.spark.bulk.{name}", most)
    plans = planned(topology, [None] * 6)
    driver, folders = emitter.folders(topology, plans)
    driver.emit_bulk(folders)
    assert one_job == [6, 3, 2]
    assert driver._load.most == 2
    _, again = emitter.folders(topology, plans)
    driver.emit_bulk(again)
    assert one_job == [6, 3, 2, 2, 2, 2]
    alone = [emitter.staged(topology, each) for each in emitter.alone(topology, plans)]
    assert [emitter.staged(topology, each) for each in folders] == alone
    assert [emitter.staged(topology, each) for each in again] == alone


@pytest.mark.rule("R17")
def test_what_is_to_be_read_whole_comes_to_the_same(emitter: Emitter, tmp_path: Path, one_job: list[int]) -> None:
    """As restates and rebuilds plan it."""
    intervals = days(date(2013, 1, 1), 3)
    write_csv(tmp_path / "a.csv", rows_of(intervals))
    topology = sales(tmp_path, pattern="*.csv", **OPTIONS)
    emitter.compare(topology, [{**plan, "format": 3, "whole": True} for plan in planned(topology, intervals)])
    assert one_job == [3]


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    ("how", "where"), [("inner", "line = 'no such line'"), pytest.param("left", "", marks=pytest.mark.whole)]
)
def test_a_value_of_all_behind_a_look_up_is_made_of_a_batch_without_records(
    emitter: Emitter, tmp_path: Path, one_job: list[int], how: str, where: str
) -> None:
    """Also where Spark knows beforehand that there is nothing to join."""
    (tmp_path / "in").mkdir()
    for number, text in enumerate(["one line\nx\n", "\ufeff", "none\n", "x\n"]):
        (tmp_path / "in" / f"{number}").write_text(text)
    topology = Topology("empty")
    stream = topology.new_stream("in", FileSpout(tmp_path / "in", files_per_batch=1))
    pairs = [("one line", "first"), ("x", "other")]
    known = topology.new_static_state(StaticState("known", pairs, "line string, name string"))
    found = (stream.filter(where) if where else stream).state_query(known, "line", fields=["name"], how=how)
    found.persistent_aggregate(OpaqueState("all"), n=Count(), last=Max("name"), names=DistinctSketch("name"))
    emitter.compare(topology, planned(topology, [None] * 4))
    assert one_job == [4]


@pytest.mark.rule("R5", "R7", "R13")
@pytest.mark.parametrize(
    "kind", [PartitionedLogSpout, pytest.param(OpaquePartitionedLogSpout, marks=pytest.mark.whole)]
)
def test_batches_of_the_same_partitions_together_are_those_alone(
    emitter: Emitter, tmp_path: Path, one_job: list[int], kind: type[PartitionedLogSpout]
) -> None:
    """With a partition that comes later, one that has nothing new, empty ranges."""
    log = PartitionedLog(tmp_path / "log", segment_records=4)
    spout = kind(log.root, max_records=3)
    topology = Topology("log")
    lines = topology.new_stream("in", spout)
    lines.group_by("line").persistent_aggregate(OpaqueState("lines"), n=Count(), last=Max("record_offset"))
    lines.filter("line <> 'a'").persistent_aggregate(OpaqueState("all"), n=Count())
    plans: list[Metadata] = []
    for txid, partition in enumerate(["0", "1", "é b", "0"], 1):
        log.append(partition, [f"{'abc'[n % 3]}" for n in range(2 * txid)])
        plans += planned(topology, [None], plans)
    plans[1]["streams"]["in"]["partitions"]["é b"] = {"start": 0, "end": 0}
    manifests = emitter.compare(topology, plans)
    assert one_job == [4]
    assert [each.records for each in manifests] == [
        sum(of["end"] - of["start"] for of in plan["streams"]["in"]["partitions"].values()) for plan in plans
    ]
    for manifest, plan in zip(manifests, plans, strict=True):
        assert manifest.streams["in"].keys() == plan["streams"]["in"]["partitions"].keys()


@pytest.mark.rule("R7", "R13")
@pytest.mark.parametrize(
    "kind", [pytest.param(PartitionedLogSpout, marks=pytest.mark.whole), OpaquePartitionedLogSpout]
)
def test_a_partition_that_is_away_fails_or_is_left_out_batch_by_batch(
    emitter: Emitter, tmp_path: Path, one_job: list[int], kind: type[PartitionedLogSpout]
) -> None:
    log = PartitionedLog(tmp_path / "log")
    topology = Topology("log")
    topology.new_stream("in", kind(log.root)).persistent_aggregate(OpaqueState("all"), n=Count())
    plans: list[Metadata] = []
    for _ in range(3):
        log.append("a", "12")
        log.append("b", "1")
        plans += planned(topology, [None], plans)
    del plans[0]["streams"]["in"]["partitions"]["b"]
    log.take_away("b")
    folders = emitter.together(topology, plans)
    assert one_job[0] == 3
    if kind is OpaquePartitionedLogSpout:
        found = [folder.read_manifest() for folder in folders]
        assert [each.records for each in found] == [2, 2, 2]
        assert [[*each.unreadable.get("in", {})] for each in found] == [[], ["b"], ["b"]]
    else:
        assert folders[0].read_manifest().records == 2
        assert [folder.read_error()["kind"] for folder in folders[1:]] == ["transient"] * 2  # type: ignore[index]
