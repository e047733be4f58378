"""The contract of spouts: those of txbatch keep it, and it catches spouts that do not."""

from __future__ import annotations

import inspect
import itertools
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from sizes import some_of

from txbatch import (
    FileSpout,
    FixedBatchSpout,
    Interval,
    IntervalSpout,
    OpaquePartitionedLogSpout,
    PartitionedLogSpout,
    TransactionAttempt,
)
from txbatch.core.sources.spout import Metadata, Spout
from txbatch.spouts.partitioned_log import PartitionedLog
from txbatch.testing import SpoutContract

pytestmark = [pytest.mark.timeout(300), pytest.mark.rule("R7")]
NUMBERS = itertools.count()
DAY = datetime(2026, 1, 1, tzinfo=UTC)


class OfLog(SpoutContract):
    names = ("0", "a b'c\"é%$(x);{}")[: some_of(1, 2)]
    kind: type[PartitionedLogSpout] = PartitionedLogSpout

    def log(self, folder: Path) -> PartitionedLog:
        return PartitionedLog(folder / "log", segment_records=4)

    def make(self, folder: Path) -> Spout:
        return self.kind(folder / "log", max_records=5)

    def append(self, folder: Path, place: str, number: int) -> None:
        self.log(folder).append(place, [f"line {next(NUMBERS)}" for _ in range(number)])

    def take_away(self, folder: Path) -> None:
        self.log(folder).take_away(self.names[-1])

    def give_back(self, folder: Path) -> None:
        self.log(folder).give_back(self.names[-1])

    def cut_off(self, folder: Path) -> None:
        for name in self.names:
            newest = self.log(folder).segments(name)[-1]
            newest.write_text("".join(newest.read_text().splitlines(keepends=True)[:-1]))

    def make_anew(self, folder: Path) -> None:
        shutil.rmtree(folder / "log")
        for name in self.names:
            self.append(folder, name, 2)


class TestLog(OfLog):
    pass


@pytest.mark.whole
class TestOpaqueLog(OfLog):
    kind = OpaquePartitionedLogSpout


@pytest.mark.whole
class TestFiles(SpoutContract):
    names = ("a.txt", "b c'd\"é%.txt", "sub/[x]{y};$z.txt")

    def make(self, folder: Path) -> Spout:
        return FileSpout(folder / "in", "*.txt", files_per_batch=2)

    def append(self, folder: Path, place: str, number: int) -> None:
        first = next(NUMBERS)
        file = folder / "in" / (place if not (folder / "in" / place).exists() else f"{first}{place.replace('/', ' ')}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"line {first} {n}\n" for n in range(number)))

    def take_away(self, folder: Path) -> None:
        (folder / "in").rename(folder / "away")

    def give_back(self, folder: Path) -> None:
        (folder / "away").rename(folder / "in")

    def cut_off(self, folder: Path) -> None:
        for name in self.names:
            (folder / "in" / name).write_text("line\n")

    def make_anew(self, folder: Path) -> None:
        shutil.rmtree(folder / "in")
        for name in self.names:
            self.append(folder, name, 1)


@pytest.mark.whole
class TestIntervals(SpoutContract):
    intervals = tuple(Interval(DAY + timedelta(n), DAY + timedelta(n + 1)) for n in range(3))

    def make(self, folder: Path) -> Spout:
        return IntervalSpout(folder / "in", "at timestamp, line string", time="at")

    def append(self, folder: Path, place: Interval, number: int) -> None:
        file = folder / "in" / f"{place.start:%d} 'é'.csv"
        file.parent.mkdir(exist_ok=True)
        with file.open("a") as out:
            out.writelines(
                f"{(place.start + timedelta(hours=n)).isoformat()},line {next(NUMBERS)}\n" for n in range(number)
            )

    def take_away(self, folder: Path) -> None:
        (folder / "in").rename(folder / "away")

    def give_back(self, folder: Path) -> None:
        (folder / "away").rename(folder / "in")

    def cut_off(self, folder: Path) -> None:
        for file in (folder / "in").iterdir():
            file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))

    def make_anew(self, folder: Path) -> None:
        shutil.rmtree(folder / "in")
        for interval in self.intervals:
            self.append(folder, interval, 1)


@pytest.mark.whole
class TestGiven(SpoutContract):
    """Records that are given in the job: a source without partitions and without time."""

    def make(self, folder: Path) -> Spout:
        return FixedBatchSpout("n int", 3, *range(self.given(folder)))

    def given(self, folder: Path) -> int:
        file = folder / "given"
        return int(file.read_text()) if file.exists() else 0

    def append(self, folder: Path, place: None, number: int) -> None:
        (folder / "given").write_text(str(self.given(folder) + number))


class Own(PartitionedLogSpout):
    """Reads in a way of its own, many batches in one pass too."""

    fusable = True  # type: ignore[assignment]


class Shortened(Own):
    """Gives what is left of a range."""

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        left = {
            label: {**of, "end": min(of["end"], self.log.end(label.rpartition("/")[2]))}
            for label, of in metadata["partitions"].items()
        }
        return super().emit_batch(spark, attempt, {**metadata, "partitions": left})


class Unsteady(PartitionedLogSpout):
    """Plans otherwise each time."""

    def emit_partition_batch_new(self, attempt: TransactionAttempt, partition: str, last_metadata: Any) -> Any:
        found = super().emit_partition_batch_new(attempt, partition, last_metadata)
        return found and {**found, "asked": next(NUMBERS)}


class Mixed(Own):
    """Gives records of one batch to another that has as many."""

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        ranges = dict(metadata["partitions"])
        labels = [label for label in ranges if label.endswith("/0")]
        if len(labels) > 1:
            ranges[labels[0]], ranges[labels[1]] = ranges[labels[1]], ranges[labels[0]]
        return super().emit_batch(spark, attempt, {**metadata, "partitions": ranges})


class Overlapping(Own):
    """Begins each range one record too early."""

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        early = {label: {**of, "start": max(of["start"] - 1, 0)} for label, of in metadata["partitions"].items()}
        return super().emit_batch(spark, attempt, {**metadata, "partitions": early})


BROKEN: Sequence[Any] = [
    (Unsteady, SpoutContract.test_a_plan_is_json_and_two_looks_agree, "two looks from one place planned"),
    *(
        pytest.param(*each, marks=pytest.mark.whole)
        for each in (
            (Mixed, SpoutContract.test_batches_read_together_are_those_alone, "together a batch has .*, alone"),
            (Shortened, SpoutContract.test_a_source_that_is_cut_off_gives_a_range_whole_or_not_at_all, "the plan gave"),
            (Overlapping, SpoutContract.test_each_record_comes_once_and_by_the_same_plan_again, "records come twice"),
        )
    ),
]


@pytest.mark.parametrize(("broken", "test", "told"), BROKEN, ids=lambda each: getattr(each, "__name__", "")[:30])
def test_a_broken_spout_is_caught(
    spark: SparkSession, tmp_path: Path, broken: type[PartitionedLogSpout], test: Any, told: str
) -> None:
    contract = OfLog()
    contract.kind = broken
    given = {"spark": spark} if "spark" in inspect.signature(test).parameters else {}
    with pytest.raises(AssertionError, match=told):
        test(contract, tmp_path, **given)
