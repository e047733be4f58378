"""Plans and reads a spout as an attempt does, without a ledger: for the contract of spouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txbatch.core.batch.manifest import Manifest, ReadPartition, check_manifest
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Assignment, Batch, BatchStatus, Interval, Metadata, Run, TransactionAttempt
from txbatch.core.errors import PartitionUnreadable
from txbatch.core.protocol import planning
from txbatch.core.protocol.bulk import as_one_assignment, reason_against
from txbatch.core.protocol.ledger import Head
from txbatch.core.protocol.spout_coordinators import Coordinators
from txbatch.core.sources.spout import Spout
from txbatch.core.topology.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM, TOPOLOGY = "in", "contract"


@dataclass(frozen=True, slots=True)
class Read:
    """The records of a plan: by partition number and fingerprint, and each record as text, in order."""

    partitions: dict[str, ReadPartition]
    records: list[str]

    @property
    def number(self) -> int:
        """The number of records that the audit counted."""
        return sum(each.records for each in self.partitions.values())


class Source:
    """A spout alone in a topology."""

    def __init__(self, spout: Spout) -> None:
        self.spout, self.topology = spout, Topology(TOPOLOGY)
        self.stream = self.topology.new_stream(STREAM, spout)

    def plan(
        self,
        before: Sequence[Metadata] = (),
        interval: Interval | None = None,
        by: Coordinators | None = None,
    ) -> Metadata | None:
        """Return the plan that follows earlier plans; None if nothing is new."""
        offsets: dict[str, Any] = {}
        for plan in map(BatchPlan.from_json, before):
            for of in plan.partitioned.values():
                offsets |= of.ranges
        txid, committed = len(before) + 1, BatchStatus.COMMITTED
        prev = Batch(TOPOLOGY, len(before), committed, before[-1], "before") if before else None
        head = Head(TOPOLOGY, txid, None, (), prev, {STREAM: offsets})
        return planning.plan_batch(self.topology, head, Run(f"run {txid}", interval=interval), by=by)

    def read(self, spark: SparkSession, plan: Metadata) -> Read:
        """Return the records of a plan. Raise what refuses an attempt of the plan."""
        # With pyspark; who tests a job needs none.
        from txbatch.spark.reader import open_reader

        assignment = _assignment(plan, 1)
        with open_reader(spark, self.stream, assignment) as reader:
            holes = reader.leave_out_unreadable()
            if holes and not reader.planned.ranges:
                raise PartitionUnreadable(f"nothing can be read: {holes}")
            found = reader.audit()
            records = self._records(reader.records())
            reader.check_unchanged()
        _check(assignment, found, holes)
        return Read(found, records)

    def read_together(self, spark: SparkSession, plans: Sequence[Metadata]) -> list[Read] | None:
        """Return the records of several plans, read in one pass; None if the plans do not go together."""
        from txbatch.spark.bulk import open_bulk
        from txbatch.spark.within_batch import OF_FIELD

        attempts = [_assignment(plan, txid) for txid, plan in enumerate(plans, 1)]
        as_one = None if reason_against(self.topology) else as_one_assignment(self.topology, attempts)
        if as_one is None:
            return None
        found = []
        with open_bulk(spark, self.stream, as_one, attempts) as reader:
            audited = reader.audit_each()
            records = reader.records()
            for attempt in attempts:
                txid = attempt.attempt.txid
                _check(attempt, audited[txid], {})
                mine = self._records(records.filter(f"{OF_FIELD.name} = '{txid}'"))
                found.append(Read(audited[txid], mine))
            reader.check_unchanged()
        return found

    def _records(self, records: DataFrame) -> list[str]:
        from txbatch.core.records.sql import spark_name

        names = [spark_name(field.name) for field in self.stream.fields]
        return sorted(repr(tuple(row)) for row in records.select(*names).collect())


def _assignment(plan: Metadata, txid: int) -> Assignment:
    return Assignment(TOPOLOGY, TransactionAttempt(txid, 1), "token", plan, "code")


def _check(assignment: Assignment, read: dict[str, ReadPartition], holes: dict[str, str]) -> None:
    """Refuse a part of the plan that was not read, and another number of records than the plan says (R7b)."""
    of = assignment.topology, assignment.attempt, assignment.token, assignment.code, assignment.digest
    check_manifest(Manifest(*of, {STREAM: read}, {}, {STREAM: holes} if holes else {}), assignment)
