"""Spouts of a user that are read many batches by one job: each record is counted in its own batch, or the job is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from txbatch import Count, OpaqueState, PartitionedSpout, Topology
from txbatch.core.errors import TransientError
from txbatch.core.fused import why_not
from txbatch.core.spout import Metadata
from txbatch.core.stream import Stream
from txbatch.core.transaction import Assignment, TransactionAttempt
from txbatch.launch.fused import Staged, stage
from txbatch.storage.staging import AttemptFolder

Rows = Callable[[AttemptFolder, int, int], Any]
Step = Callable[[Stream], Stream]
Together = Callable[[Topology, Mapping[int, Metadata]], tuple[dict[int, Staged], dict[int, Any]]]


@pytest.fixture
def together(spark: SparkSession, tmp_path: Path, read_partials: Rows) -> Together:
    """Emits batches by one job; returns what it read and staged of each, and the partials of the first state."""

    def run(topology: Topology, plans: Mapping[int, Metadata]) -> tuple[dict[int, Staged], dict[int, Any]]:
        assert why_not(topology) is None
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
        TransientError, match=r"^t [12]:1, stream 'in', state 's': other records were counted than read"
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
