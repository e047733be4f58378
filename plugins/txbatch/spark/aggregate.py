"""From a batch's records to partials, and the audit of what was read (R7)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txbatch.core.aggregator import quoted
from txbatch.core.errors import BadRecord, PartitionUnreadable, TxbatchError
from txbatch.core.fields import Field
from txbatch.core.manifest import ReadPartition
from txbatch.core.spout import PARTITION_COLUMN, PartitionedSpout, SpoutKind
from txbatch.core.topology import PersistentAggregate, Stream
from txbatch.core.transaction import Assignment, Metadata
from txbatch.spark.failures import FunctionFailed, in_our_words
from txbatch.spark.operations import run_operations, with_condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REMOVES = "_txbatch_removes"  # whether a record removes its key
_BAD_VALUE = re.compile(r"txbatch bad value\|(\d+)\|([^|]+)\|")


@dataclass(frozen=True, slots=True)
class BatchReader:
    """Reads one stream of a batch, `stream` being as its spout gives it."""

    spark: SparkSession
    stream: Stream
    assignment: Assignment
    left_out: frozenset[str] = frozenset()

    @property
    def plan(self) -> Metadata:
        """What the batch's metadata says of this stream, less the partitions left out."""
        plan: Metadata = self.assignment.metadata["streams"][self.stream.name]
        if not self.left_out:
            return plan
        return {**plan, "partitions": {k: v for k, v in plan["partitions"].items() if k not in self.left_out}}

    def holes(self) -> dict[str, str]:
        """The partitions that an opaque spout declares unreadable, with the reason (R13)."""
        spout, attempt = self.stream.spout, self.assignment.attempt
        found: dict[str, str] = {}
        if not isinstance(spout, PartitionedSpout) or spout.kind is not SpoutKind.OPAQUE:
            return found
        for partition, range_ in self.plan["partitions"].items():
            try:
                spout.emit_partition_batch(self.spark, attempt, partition, range_)
            except PartitionUnreadable as error:
                found[partition] = str(error)
        return found

    def records(self, partitions: Sequence[str] | None = None) -> DataFrame:
        """The batch's records as the spout emits them, or those of some of its partitions."""
        plan = self.plan
        if partitions is not None:
            plan = {**plan, "partitions": {name: plan["partitions"][name] for name in partitions}}
        return self.stream.spout.emitter().emit_batch(self.spark, self.assignment.attempt, plan)

    def audit(self) -> dict[str, ReadPartition]:
        """Per partition: records read, and the sum of their xxhash64. BadRecord names partitions with invalid UTF-8.

        An empty range and a file without records count as read; any other partition that gave nothing stays away, and
        is found missing (R7b).
        """
        records = self.records()
        found = {self._partition(row["partition"]): row for row in self._audit(records).collect()}
        invalid = sorted(name for name, row in found.items() if row["invalid"])
        if invalid:
            raise BadRecord(f"{self}: invalid UTF-8 in {', '.join(invalid[:5])}; mend the source, or abort the batch")
        return self._without_records(records) | {
            name: ReadPartition(row["records"], str(row["fingerprint"])) for name, row in found.items()
        }

    def partials(self, aggregate: PersistentAggregate, partitions: Sequence[str] | None = None) -> DataFrame:
        """One row per key with the batch's partials."""
        records = self.records(partitions).select(*(quoted(field.name) for field in self.stream.fields))
        grouped = _aggregated(run_operations(aggregate.stream, records), aggregate)
        columns = [*aggregate.keys, *(Field(column.name, column.partial.type) for column in aggregate.partial_columns)]
        keys = len(aggregate.keys)
        return grouped.selectExpr(*(_checked(column, n, key=n < keys) for n, column in enumerate(columns)))

    def explain(self, error: Exception, aggregate: PersistentAggregate) -> TxbatchError:
        """Why the partials could not be made, in our words; with a partition that has it, if one alone does."""
        problem = self._bad_value(error, aggregate) or in_our_words(error)
        if problem is error:
            return problem
        where = self._where(type(problem), aggregate) if isinstance(problem, BadRecord | FunctionFailed) else ""
        return type(problem)(f"{self}, state {aggregate.state.name!r}: {problem}{where}")

    def __str__(self) -> str:
        return f"{self.assignment.topology} {self.assignment.attempt}, stream {self.stream.name!r}"

    def _audit(self, records: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        names = [quoted(field.name) for field in self.stream.fields]
        strings = [quoted(field.name) for field in self.stream.fields if field.type == "string"]
        valid = " and ".join(f"coalesce(is_valid_utf8({name}), true)" for name in strings) or "true"
        partition = F.col(PARTITION_COLUMN) if isinstance(self.stream.spout, PartitionedSpout) else F.lit("")
        return records.groupBy(partition.alias("partition")).agg(
            F.expr("count(1) as records"),
            F.expr(f"coalesce(sum(cast(xxhash64({', '.join(names)}) as decimal(38,0))), 0) as fingerprint"),
            F.expr(f"count_if(not ({valid})) as invalid"),
        )

    def _without_records(self, records: DataFrame) -> dict[str, ReadPartition]:
        """What counts as read though it gave no records: intervals, empty ranges, and files that Spark says it opens."""
        if "interval" in self.plan:
            return {"": ReadPartition(0, "0")}
        planned = self.plan.get("partitions", {})
        opened = {self._partition(uri) for uri in records.inputFiles()} if planned else set()
        return {
            name: ReadPartition(0, "0") for name, of in planned.items() if of["start"] == of["end"] or name in opened
        }

    def _bad_value(self, error: Exception, aggregate: PersistentAggregate) -> BadRecord | None:
        found = _BAD_VALUE.search(str(error))
        if not found:
            return None
        names = [
            *(f"key {key.name!r}" for key in aggregate.keys),
            *(f"value {each.name!r}" for each in aggregate.columns),
        ]
        return BadRecord(f"{names[int(found[1])]} {found[2]}; filter such records out in the job")

    def _where(self, problem: type[TxbatchError], aggregate: PersistentAggregate) -> str:
        """A partition on which the same happens alone, found by halving; reads the batch at most once more."""
        partitions = list(self.plan.get("partitions", {}))
        while len(partitions) > 1:
            half = partitions[: len(partitions) // 2]
            partitions = half if self._fails(problem, aggregate, half) else partitions[len(half) :]
        return f" (in {partitions[0]})" if partitions and self._fails(problem, aggregate, partitions) else ""

    def _fails(self, problem: type[TxbatchError], aggregate: PersistentAggregate, partitions: Sequence[str]) -> bool:
        try:
            self.partials(aggregate, partitions).write.format("noop").mode("overwrite").save()
        except Exception as error:
            return isinstance(self._bad_value(error, aggregate) or in_our_words(error), problem)
        return False

    def _partition(self, value: str) -> str:
        spout = self.stream.spout
        return spout.partition_name(value) if isinstance(spout, PartitionedSpout) else value


def _aggregated(frame: DataFrame, aggregate: PersistentAggregate) -> DataFrame:
    """One row per key. Where keys may be removed, first one for the records that remove it and one for the others."""
    from pyspark.sql import functions as F

    keys = [quoted(key.name) for key in aggregate.keys]
    values = [F.expr(column.partial.aggregate).alias(column.name) for column in aggregate.columns]
    if aggregate.remove is None:
        return frame.groupBy(*keys).agg(*values)
    marked = with_condition(frame, aggregate.remove, REMOVES)
    apart = marked.groupBy(*keys, REMOVES).agg(*values)
    names = [quoted(column.name) for column in aggregate.columns]
    counted = [F.expr(f"any_value({name}) FILTER (WHERE NOT {REMOVES}) AS {name}") for name in names]
    marks = [F.expr(f"bool_or({REMOVES}) AS removed"), F.expr(f"bool_or(NOT {REMOVES}) AS counted")]
    return apart.groupBy(*keys).agg(*counted, *marks)


def _checked(column: Field, number: int, *, key: bool) -> str:
    """The column, or an error where PostgreSQL could not store it: a null key, U+0000 or invalid UTF-8 in a string."""
    name, cases = quoted(column.name), []
    if key:
        cases.append((f"{name} is null", "is null"))
    if column.type == "string":
        cases += [(f"instr({name}, char(0)) > 0", "holds U+0000"), (f"not is_valid_utf8({name})", "is invalid UTF-8")]
    errors = " ".join(f"when {bad} then raise_error('txbatch bad value|{number}|{reason}|')" for bad, reason in cases)
    return f"case {errors} else {name} end as {name}" if cases else name
