"""A source that is not on this machine: an attempt takes its records once, whatever it makes of them, and then lets go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from sizes import some_of
from spark.emitting import Emitter

from txbatch import Count, OpaquePartitionedSpout, OpaqueState, PartitionedSpout, Topology
from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.errors import PartitionUnreadable, TransientError
from txbatch.core.sources.emitter import PARTITION_COLUMN
from txbatch.core.sources.labels import labelled, partitions_of
from txbatch.core.sources.spout import Metadata
from txbatch.spark.kept_records import KeptRecords
from txbatch.spark.reader import open_reader

STATES = (3, 1, 5)[: some_of(1, 3)]


class Service(PartitionedSpout):
    """Numbers by partition. Each partition that a task of Spark takes is a line in the file `taken`."""

    fields, remote, fusable = "n bigint", True, True
    identity: Metadata = {"spout": "Service"}  # noqa: RUF012

    def __init__(self, folder: Path, *away: str) -> None:
        self.taken, self.away, self.looks, self.asked = folder / "taken", away, 0, 0

    def partitions(self) -> Sequence[str]:
        return [*"abcd"]

    def emit_partition_batch_new(self, attempt: TransactionAttempt, partition: str, last: Metadata | None) -> Metadata:
        start = last["end"] if last else 0
        return {"start": start, "end": start + 3}

    def emit_partition_batch(self, *_: Any) -> DataFrame:
        raise AssertionError("all are read at once")

    def unreadable(self, metadata: Metadata) -> dict[str, str]:
        self.looks += 1
        return {name: "away" for name, of in partitions_of(metadata).items() if of in self.away}

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        """Read nothing now: each record is made by a task of Spark."""
        self.asked += 1
        if {*partitions_of(metadata).values()} & {*self.away}:
            raise PartitionUnreadable("away")
        ranges, taken = list(metadata["partitions"].items()), str(self.taken)

        def take(rows: Any) -> Any:
            import pyarrow as pa

            for batch in rows:
                for name, start, end in zip(*batch.to_pydict().values(), strict=True):
                    with open(taken, "a") as file:
                        file.write(f"{name}\n")
                    yield pa.record_batch(
                        [pa.array(range(start, end), pa.int64()), pa.array([name] * (end - start))],
                        ["n", PARTITION_COLUMN],
                    )

        rows = [(name, of["start"], of["end"]) for name, of in ranges]
        asked = spark.createDataFrame(rows, "name string, start bigint, end bigint")
        return asked.mapInArrow(take, f"{self.fields}, {PARTITION_COLUMN} string")

    def fused(self, plans: Sequence[Metadata]) -> Metadata:
        return labelled(plans)

    def scans(self) -> list[str]:
        """What tasks have taken since the last call."""
        found = sorted(self.taken.read_text().split()) if self.taken.exists() else []
        self.taken.unlink(missing_ok=True)
        return found


class OpaqueService(Service, OpaquePartitionedSpout):
    """May leave partitions out."""


def counting(spout: Service, states: int) -> Topology:
    topology = Topology("t")
    stream = topology.new_stream("in", spout)
    for number in range(states):
        stream.filter(f"n % 7 <> {number}").persistent_aggregate(OpaqueState(f"s{number}"), n=Count())
    return topology


def plan(batch: int) -> Metadata:
    ranges = {name: {"start": 3 * batch, "end": 3 * batch + 3, "records": 3} for name in "abcd"}
    return {"format": 2, "streams": {"in": {"partitions": ranges}}}


def kept(spark: SparkSession) -> int:
    """How many sets of records Spark keeps."""
    return len(spark.sparkContext._jsc.getPersistentRDDs())  # type: ignore[attr-defined]


@pytest.mark.timeout(300)
@pytest.mark.rule("R7")
def test_records_are_taken_once_an_attempt_of_one_batch_and_of_several_and_are_let_go(
    emitter: Emitter, tmp_path: Path
) -> None:
    before = kept(emitter.spark)
    for states in STATES:
        spout = Service(tmp_path)
        topology = counting(spout, states)
        manifests = emitter.compare(topology, [plan(0), plan(1)])
        assert [each.records for each in manifests] == [12, 12]
        together, alone = [f"{n}/{name}" for n in range(2) for name in "abcd"], [*"aabbccdd"]
        assert spout.scans() == sorted([*together, *alone])
        assert spout.asked <= 3 * 2 + 2  # each attempt: to read, and at the end
        assert kept(emitter.spark) == before


@pytest.mark.rule("R7", "R13")
def test_what_is_away_is_asked_for_once_however_many_partitions(emitter: Emitter, tmp_path: Path) -> None:
    spout = OpaqueService(tmp_path, "b", "d")
    topology = counting(spout, 1)
    (folder,) = emitter.alone(topology, [plan(0)])
    manifest: Manifest = folder.read_manifest()
    assert (manifest.unreadable, spout.looks) == ({"in": {"b": "away", "d": "away"}}, 1)
    assert spout.scans() == ["a", "c"]
    folders = emitter.together(topology, [plan(0), plan(1)])
    assert [[*folder.read_manifest().unreadable["in"]] for folder in folders] == [["b", "d"]] * 2
    assert spout.scans() == [*"aacc"]


@pytest.mark.rule("R5", "R7")
def test_a_kept_block_that_is_lost_fails_the_attempt_and_nothing_is_taken_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As where an executor is killed between the audit and a state."""
    spout = Service(tmp_path)
    topology = counting(spout, 1)
    before = kept(spark)
    assignment = Assignment("t", TransactionAttempt(1, 1), "token", plan(0), "code")
    with open_reader(spark, topology.streams["in"], assignment) as reader:
        assert sum(read.records for read in reader.audit().values()) == 12
        assert reader.records(["b"]).count() == 3
        assert spout.scans() == [*"abcd"]
        assert reader._kept is not None
        frame = reader._kept.frame
        reader._kept.free()
        with pytest.raises(Exception, match=r"Checkpoint block .* not found"):
            frame.count()
        with pytest.raises(Exception, match=r"Checkpoint block .* not found"):
            reader.records().count()
    assert spout.scans() == []
    assert kept(spark) == before


# A value of each type that a record may have, the odd ones; and nothing at all.
KINDS = """
SELECT true a, 7S b, -1 c, 9223372036854775807L d, float('NaN') e, double('-0.0') f, 1.50BD g,
       cast('-1234567890123456789012345678.0123456789' as decimal(38,10)) h, 'é\\t' i, '' j, X'00ff' k, DATE '0001-01-01' l,
       TIMESTAMP '9999-12-31 23:59:59.999999Z' m, array('x', NULL) n, named_struct('p', 1L, 'q', 'r') o
UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
"""


@pytest.mark.rule("R7", "R24")
def test_kept_records_are_the_records_in_every_type_and_in_rows_longer_than_a_block(spark: SparkSession) -> None:
    before = kept(spark)
    long = f"SELECT id, repeat(cast(id as string), {some_of(5_000_000, 50_000_000)}) text FROM range(1, 4, 1, 2)"
    for query in (KINDS, long, f"SELECT * FROM ({long}) WHERE id > 9"):
        records = spark.sql(query)
        found = KeptRecords.of(records)
        assert (found.frame.schema, digests(found.frame)) == (records.schema, digests(records))
        assert kept(spark) == before + 1
        found.free()
        assert kept(spark) == before


def digests(records: DataFrame) -> list[int]:
    """The hash of each record, in order."""
    return sorted(number for (number,) in records.selectExpr("xxhash64(*)").collect())


@pytest.mark.rule("R7")
def test_at_the_end_a_source_is_looked_at_and_not_read(spark: SparkSession, tmp_path: Path) -> None:
    spout = Service(tmp_path)
    assignment = Assignment("t", TransactionAttempt(1, 1), "token", plan(0), "code")
    with open_reader(spark, counting(spout, 1).streams["in"], assignment) as reader:
        reader.audit()
        reader.check_unchanged()
        assert (spout.asked, spout.scans()) == (2, [*"abcd"])
        spout.away = ("c",)
        with pytest.raises(TransientError):
            reader.check_unchanged()
