"""Spouts of a user that are read many batches by one job: each record is counted in its own batch, or the job is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from refusals import refused
from spark.emitting import Emitter, Rows

from txbatch import Count, OpaqueState, PartitionedSpout, PlainSpout, StaticState, Topology
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.errors import Incomplete, TransientError
from txbatch.core.protocol.bulk import reason_against
from txbatch.core.sources.emitter import PARTITION_COLUMN
from txbatch.core.sources.spout import Metadata
from txbatch.core.topology.stream import Stream
from txbatch.launch.bulk import Staged, stage
from txbatch.storage.staging import AttemptFolder

Step = Callable[[Stream], Stream]
Together = Callable[[Topology, Mapping[int, Metadata]], tuple[dict[int, Staged], dict[int, Any]]]


@pytest.fixture
def together(spark: SparkSession, tmp_path: Path, read_partials: Rows) -> Together:
    """Emits batches by one job; returns what it read and staged of each, and the partials of the first state."""

    def run(topology: Topology, plans: Mapping[int, Metadata]) -> tuple[dict[int, Staged], dict[int, Any]]:
        assert reason_against(topology) is None
        attempts = [
            (
                AttemptFolder((tmp_path / str(txid)).as_uri()),
                Assignment("t", TransactionAttempt(txid, 1), "token", {"format": 2, "streams": {"in": plan}}, "code"),
            )
            for txid, plan in plans.items()
        ]
        spark.catalog.clearCache()
        staged = stage(spark, topology, attempts)
        keys = len(topology.aggregates[0].keys)
        return staged, {of.attempt.txid: read_partials(folder, 0, keys) for folder, of in attempts}

    return run


def counting(spout: Any, step: Step = lambda stream: stream) -> Topology:
    stream = step(Topology("t").new_stream("in", spout))
    stream.group_by("line").persistent_aggregate(OpaqueState("s"), n=Count())
    return stream.topology  # type: ignore[return-value]


class Lines(PartitionedSpout):
    """A partition of lines for each batch; `left` of them are there once the audit has read it, whatever reads it next."""

    fields = "line string"
    fusable = True
    identity: Metadata = {"spout": "Lines"}  # noqa: RUF012

    def __init__(self, *, left: int = 4, says: bool = True) -> None:
        self.left, self.says, self.asked = left, says, list[str]()

    def partitions(self) -> Sequence[str]:
        return ["x", "y"]

    def emit_partition_batch_new(self, attempt: TransactionAttempt, partition: str, last_metadata: Any) -> Metadata:
        raise AssertionError

    def plans(self) -> dict[int, Metadata]:
        said = {"records": 4} if self.says else {}
        return {txid: {"partitions": {name: {"start": 0, "end": 4, **said}}} for txid, name in ((1, "x"), (2, "y"))}

    def fused(self, plans: Sequence[Metadata]) -> Metadata | None:
        return {"partitions": {name: of for plan in plans for name, of in plan["partitions"].items()}}

    def emit_partition_batch(
        self, spark: SparkSession, attempt: TransactionAttempt, partition: str, metadata: Metadata
    ) -> DataFrame:
        self.asked.append(partition)
        there = 4 if self.asked.count(partition) == 1 or partition == "x" else self.left
        return spark.createDataFrame([(line,) for line in "abca"[:there]], self.fields)


FILTERED: list[Step] = [lambda s: s.filter("line <> 'b'"), lambda s: s.flat_map("array(line, line)", "line string")]


@pytest.mark.rule("R7")
@pytest.mark.parametrize(
    ("step", "says", "left"),
    [(lambda s: s, False, 2), *((step, True, 2) for step in FILTERED), (FILTERED[0], True, 0)],
)
def test_a_source_that_is_cut_off_between_audit_and_state(
    together: Together, step: Step, says: bool, left: int
) -> None:
    spout = Lines(left=left, says=says)
    with pytest.raises(
        TransientError,
        match=r"^TX204 \(try again\): t [12]:1, stream 'in', state 's': other records were counted than read",
    ):
        together(counting(spout, step), spout.plans())


def test_a_source_that_stays_counts_in_each_batch(together: Together) -> None:
    for step in (lambda s: s, FILTERED[0]):
        spout = Lines()
        _, found = together(counting(spout, step), spout.plans())
        assert found[1] == found[2]
        assert found[1]["a",] == (2,)


@pytest.mark.parametrize("condition", ["1 = 0", "line = 'z'"])
def test_records_that_spark_need_not_read_are_no_change(together: Together, condition: str) -> None:
    spout = Lines()
    assert together(counting(spout, lambda s: s.filter(condition)), spout.plans())[1] == {1: {}, 2: {}}


class Ticks(PlainSpout):
    """By time: `records` are hours and the lines that they have; which batch asks for the record of an hour, `asks` may say."""

    by_interval, fusable = True, True
    fields, time = "at timestamp, line string", "at"
    identity: Metadata = {"spout": "Ticks"}  # noqa: RUF012

    def __init__(self, records: Sequence[tuple[int, str]], extra: Sequence[tuple[int, str]] = (), **asks: int) -> None:
        self.records, self.extra, self.asks = records, extra, asks

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Metadata:
        raise AssertionError

    def plans(self, *hours: tuple[int, int]) -> dict[int, Metadata]:
        """One for each interval, from one hour to another."""
        intervals = [[hour(start).isoformat(), hour(end).isoformat()] for start, end in hours]
        return {txid: {"plan": each, "interval": each} for txid, each in enumerate(intervals, 1)}

    def fused(self, plans: Sequence[Metadata]) -> Metadata | None:
        return [plans[0][0], plans[-1][1]]

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        start, end = metadata
        found = [(at, line) for at, line in self.records if start <= hour(self.asks.get(line, at)).isoformat() < end]
        rows = [(hour(at), line) for at, line in [*found, *self.extra]]
        return spark.createDataFrame(rows, self.fields)


def hour(number: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number)


def test_records_of_a_spout_by_time_are_counted_each_in_its_batch(together: Together) -> None:
    spout = Ticks([(0, "a"), (1, "b"), (2, "a"), (3, "c")])
    staged, found = together(counting(spout), spout.plans((0, 2), (2, 3), (3, 4)))
    assert found == {1: {("a",): (1,), ("b",): (1,)}, 2: {("a",): (1,)}, 3: {("c",): (1,)}}
    assert [read["in"][""].records for read, *_ in staged.values()] == [2, 1, 1]


@pytest.mark.rule("R7")
@pytest.mark.parametrize(
    ("spout", "hours", "outside"),
    [
        (Ticks([(0, "a"), (3, "c")], [(7, "late")]), [(0, 2), (2, 4)], "2026-01-01 07:00:00"),
        (Ticks([(0, "a"), (2, "between"), (3, "c")]), [(0, 2), (3, 4)], "2026-01-01 02:00:00"),
        (Ticks([(0, "a"), (9, "elsewhere")], elsewhere=1), [(0, 2), (2, 4)], "2026-01-01 09:00:00"),
    ],
)
def test_a_record_of_no_batch_is_refused_and_named(
    together: Together, spout: Ticks, hours: list[tuple[int, int]], outside: str
) -> None:
    with refused("TX210", "t 1:1", "'in'", "Ticks", f"whose at is {outside}"):
        together(counting(spout), spout.plans(*hours))


def test_a_record_without_a_time_is_refused(together: Together) -> None:
    class Timeless(Ticks):
        def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
            return spark.createDataFrame([(None, "a")], self.fields)

    with pytest.raises(Incomplete, match="a record without at"):
        together(counting(Timeless([])), Timeless([]).plans((0, 2), (2, 4)))


@pytest.mark.rule("R5", "R7")
def test_a_record_that_fused_would_count_in_another_batch_is_refused_of_one_as_well(emit: Any) -> None:
    """Its batch asks for it, and its time is of the next one."""
    spout = Ticks([(0, "a"), (3, "moved")], moved=1)
    with pytest.raises(Incomplete, match=r"whose at is 2026-01-01 03:00:00, outside all requested batches"):
        emit(counting(spout), {"format": 2, "streams": {"in": spout.plans((0, 2))[1]}})


@pytest.mark.rule("R5", "R7")
@pytest.mark.parametrize("step", [lambda s: s, pytest.param(FILTERED[0], marks=pytest.mark.whole)])
def test_an_interval_that_gives_one_record_less_than_it_says_is_refused(emitter: Emitter, step: Step) -> None:
    """Read with others, and by itself: nothing of the day is lost in silence."""

    def plans(*records: int) -> list[Metadata]:
        found = Ticks([]).plans((0, 2), (2, 3)).values()
        return [
            {"format": 8, "streams": {"in": {**plan, "records": number}}}
            for plan, number in zip(found, records, strict=True)
        ]

    topology = counting(Ticks([(0, "a"), (1, "b"), (2, "a")]), step)
    assert [each.records for each in emitter.compare(topology, plans(2, 1))] == [2, 1]
    for folders in (emitter.together(topology, plans(3, 1)), emitter.alone(topology, plans(3, 1))):
        told = folders[0].read_error()
        assert told is not None
        assert "the interval of stream 'in' was planned with 3 records, 2 were read" in told["message"]
        assert folders[1].read_manifest().records == 1


def test_a_spout_may_say_that_it_reads_what_is_of_no_batch(together: Together) -> None:
    class Gaps(Ticks):
        reads_gaps = True

    spout = Gaps([(0, "a"), (2, "between"), (3, "c")])
    assert together(counting(spout), spout.plans((0, 2), (3, 4)))[1] == {1: {("a",): (1,)}, 2: {("c",): (1,)}}


class Own(Lines):
    """A spout of partitions that reads them all by one frame: `more` is what it gives besides."""

    def __init__(self, *more: tuple[str, str], says: bool = True, reads: bool = True) -> None:
        super().__init__(says=says)
        self.more, self.reads = more, reads

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        rows = [(line, name) for name in metadata["partitions"] for line in "abca"]
        several = len(metadata["partitions"]) > 1
        if several and not self.reads:
            rows = [(line, name) for line, name in rows if name == "x"]
        return spark.createDataFrame(
            [*rows, *(self.more if several else ())], f"{self.fields}, {PARTITION_COLUMN} string"
        )


@pytest.mark.rule("R5", "R7")
def test_a_spout_of_a_user_is_emitted_many_batches_by_one_job(emitter: Emitter) -> None:
    for spout in (Lines(), Own(says=False)):
        manifests = emitter.compare(
            counting(spout), [{"format": 2, "streams": {"in": of}} for of in spout.plans().values()]
        )
        assert [each.streams["in"].keys() for each in manifests] == [{"x"}, {"y"}]
        assert [each.records for each in manifests] == [4, 4]


@pytest.mark.rule("R7")
@pytest.mark.parametrize(
    ("spout", "why"),
    [
        (Own(("z", "z")), "partition 'z' was read but not planned"),
        (Own(("a", "x")), "planned with 4 records"),
        (Own(("other", "y")), "planned with 4 records"),
        (Own(reads=False), "was not read: y"),
    ],
    ids=["partition-not-planned", "record-twice", "record-of-another", "partition-not-read"],
)
def test_a_job_that_reads_others_than_are_planned_is_refused_and_each_batch_is_emitted_by_itself(
    emitter: Emitter, capfd: pytest.CaptureFixture[str], spout: Own, why: str
) -> None:
    """By itself it gives the right records here; the job of several says what was wrong."""
    topology, plans = counting(spout), [{"format": 2, "streams": {"in": of}} for of in spout.plans().values()]
    emitter.compare(topology, plans)
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("txbatch: 2 batches by one job: ")]
    assert len(told) == 1
    assert why in told[0]


@pytest.mark.timeout(90)
@pytest.mark.rule("R7")
def test_a_value_of_all_behind_a_look_up_is_made_where_records_are_counted_and_there_are_none(
    together: Together,
) -> None:
    """Of one batch, and of all."""

    class Few(Lines):
        def emit_partition_batch(
            self, spark: SparkSession, attempt: Any, partition: str, metadata: Metadata
        ) -> DataFrame:
            lines = [("a",)] * metadata["records"]
            return spark.createDataFrame(lines, self.fields)

    for records in (2, 0):
        topology = Topology("t")
        known = topology.new_static_state(StaticState("known", [("a", "A")], "line string, name string"))
        found = topology.new_stream("in", Few()).filter("line <> 'b'").state_query(known, "line", how="inner")
        found.persistent_aggregate(OpaqueState("s"), n=Count())
        plans = {
            txid: {"partitions": {name: {"start": 0, "end": number, "records": number}}}
            for txid, name, number in ((1, "x", records), (2, "y", 0))
        }
        staged, made = together(topology, plans)
        assert made == {1: {(): (records,)}, 2: {(): (0,)}}
        assert [read["in"] for read, *_ in staged.values()][1]["y"].records == 0
