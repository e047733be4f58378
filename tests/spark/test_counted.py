"""What a state counts is what the audit read, also of a source that changes between the two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from txbatch import Count, OpaqueState, PartitionedSpout, StaticState, Topology
from txbatch.core.batch.manifest import ReadPartition
from txbatch.core.batch.transaction import TransactionAttempt
from txbatch.core.errors import TransientError
from txbatch.core.sources.spout import Metadata
from txbatch.core.topology.stream import Stream

Emit = Callable[..., Any]
Step = Callable[[Stream], Stream]
ONE_FOR_ONE: list[Step] = [
    lambda s: s,
    lambda s: s.each("upper(line)", "upper string"),
    lambda s: s.map(lambda record: record["line"], "line string").project("line"),
    lambda s: s.state_query(
        s.topology.new_static_state(StaticState("names", [("a", "A")], "line string, name string")), "line"
    ),  # type: ignore[attr-defined]
]
OTHERS: list[Step] = [
    lambda s: s.filter("line <> 'b'"),
    lambda s: s.filter(lambda record: record["line"] != "b"),
    lambda s: s.flat_map("array(line, line)", "line string"),
    lambda s: s.transform(lambda frame: frame.filter("line <> 'b'"), "line string"),
]


class CutOff(PartitionedSpout):
    """Lines of which another process leaves `left` once the audit has read them, whatever reads them next."""

    fields = "line string"

    def __init__(self, *, left: int, says: bool) -> None:
        self.left, self.says, self.asked = left, says, 0

    @property
    def identity(self) -> Metadata:
        return {"spout": "CutOff"}

    def partitions(self) -> Sequence[str]:
        return ["x"]

    def emit_partition_batch_new(self, attempt: TransactionAttempt, partition: str, last_metadata: Any) -> Metadata:
        return {"start": 0, "end": 4, **({"records": 4} if self.says else {})}

    def emit_partition_batch(
        self, spark: SparkSession, attempt: TransactionAttempt, partition: str, metadata: Metadata
    ) -> DataFrame:
        self.asked += 1
        lines = "abca" if self.asked == 1 else "abca"[: self.left]
        return spark.createDataFrame([(line,) for line in lines], self.fields)


def counting(spout: PartitionedSpout, step: Step) -> Topology:
    stream = step(Topology("t").new_stream("in", spout))
    stream.group_by("line").persistent_aggregate(OpaqueState("s"), n=Count())
    return stream.topology  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("step", "says", "left"),
    [*((step, False, 2) for step in ONE_FOR_ONE), *((step, True, 2) for step in OTHERS), (OTHERS[0], True, 0)],
)
def test_a_source_that_is_cut_off_between_audit_and_state(emit: Emit, step: Step, says: bool, left: int) -> None:
    with pytest.raises(
        TransientError,
        match=r"^TX204 \(try again\): t 1:1, stream 'in', state 's': other records were counted than read before",
    ):
        emit(counting(CutOff(left=left, says=says), step))


def test_a_source_that_stays_counts(emit: Emit) -> None:
    for step in (ONE_FOR_ONE[-1], OTHERS[0], OTHERS[-1]):
        assert emit(counting(CutOff(left=4, says=True), step)).read() == {"x": 4}


@pytest.mark.parametrize("condition", ["1 = 0", "line = 'z'"])
def test_records_that_spark_need_not_read_are_no_change(emit: Emit, condition: str) -> None:
    assert emit(counting(CutOff(left=4, says=True), lambda s: s.filter(condition))).partials["s"] == {}


def test_of_a_stream_that_is_merged_with_itself_each_part_is_counted(emit: Emit) -> None:
    def both(lines: Stream) -> Stream:
        return lines.topology.merge(lines.filter("line = 'a'"), lines, name="both")  # type: ignore[attr-defined,no-any-return]

    assert emit(counting(CutOff(left=4, says=True), both)).partials["s"] == {("a",): (4,), ("b",): (1,), ("c",): (1,)}
    with pytest.raises(TransientError, match="other records were counted"):
        emit(counting(CutOff(left=2, says=True), both))


class Many(CutOff):
    """Lines of which the hashes are negative and not, more of the one than of the other."""

    def __init__(self) -> None:
        super().__init__(left=0, says=False)

    def lines(self, spark: SparkSession) -> DataFrame:
        return spark.range(1000).selectExpr("cast(id as string) as line").filter("xxhash64(line) > 0 or line like '%7'")

    def emit_partition_batch(
        self, spark: SparkSession, attempt: TransactionAttempt, partition: str, metadata: Metadata
    ) -> DataFrame:
        return self.lines(spark)


def test_the_fingerprint_is_the_sum_of_all_hashes(emit: Emit, spark: SparkSession) -> None:
    """Its three parts carry and borrow: hashes are of both signs, and their sum outgrows 64 bits."""
    topology = Topology("t")
    topology.new_stream("in", Many()).group_by("line").persistent_aggregate(OpaqueState("s"), n=Count())
    hashes = Many().lines(spark).selectExpr("xxhash64(line) as hash").toArrow()["hash"].to_pylist()
    found = emit(topology).manifest.streams["in"]
    assert found == {"x": ReadPartition(len(hashes), str(sum(hashes)))}
    assert abs(sum(hashes)) > 1 << 64
