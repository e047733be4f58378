"""PostgresIntervalSpout: the rows of a table in PostgreSQL with a time in the run's interval."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from txbatch.core.batch.planned_table import replaced
from txbatch.core.batch.transaction import Metadata, TransactionAttempt
from txbatch.core.errors import InvalidOption, NoInterval
from txbatch.core.sources.by_time import PLAUSIBLE, bounds, check_days
from txbatch.core.sources.looking_back import LateRows, LooksBackInTable
from txbatch.core.sources.spout import BatchCoordinator, Emitter, Spout
from txbatch.spouts.tables import intervals
from txbatch.spouts.tables.connection import Session
from txbatch.spouts.tables.intervals import IntervalPlanner, TimeColumn, Timed, parts_of, rows_of
from txbatch.spouts.tables.late_rows import counts
from txbatch.spouts.tables.planning import KeptLook, Look
from txbatch.spouts.tables.reads_table import ROW_BYTES, ReadsTable
from txbatch.spouts.tables.stretches import Part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txbatch.core.records.declared import Fields


class PostgresIntervalSpout(LooksBackInTable, ReadsTable, Emitter, Spout):
    """Reads the rows of a table of PostgreSQL with the field `time` in the run's interval, as they are when it is planned.

    `table`, `fields`, `source`, `timezone` and `accept` are those of PostgresSpout, and the table is prepared like its
    table. `time` names a timestamp or a date among the fields; its column is NOT NULL, and should have an index. A row with a
    time outside the two `plausible` dates makes planning fail: the row would be in no interval.

    The plan has the interval and a snapshot: each attempt reads the rows of the interval that the snapshot sees. A row that
    commits later is not counted until the interval is restated; runs, `txbatch status` and `verify` tell of the row.
    Transactional. With `lookback`, such as "3 days", a run counts intervals with late rows again after the run's own commit, if
    not further back.
    """

    by_interval = True

    def __init__(
        self,
        table: str,
        fields: Fields,
        *,
        time: str,
        source: str,
        timezone: str | None = None,
        plausible: tuple[str, str] = PLAUSIBLE,
        accept: str | Sequence[str] = (),
        lookback: str | None = None,
    ) -> None:
        super().__init__(table, fields, source, timezone, accept)
        self.time, self.plausible, self.lookback = time, plausible, lookback
        self.lookback_micros  # noqa: B018 (an invalid length is refused)
        bounds(type(self).__name__, plausible)
        if self._time_type not in ("timestamp", "date"):
            raise InvalidOption(
                f"{type(self).__name__}: time={time!r} is no timestamp and no date among the fields {self.fields}"
            )

    @property
    def identity(self) -> Metadata:
        told = {"spout": "PostgresIntervalSpout", "source": self.source, "table": self.table, "time": self.time}
        return told | ({"timezone": self.timezone} if self.timezone else {})

    def coordinator(self) -> BatchCoordinator:
        return _Coordinator(self)

    def emitter(self) -> Emitter:
        return self

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        """Return the rows of the plan, by tasks with a connection each. Refuse a server with another history."""
        plans = parts_of(metadata)
        with self.session() as session:
            table = self._checked(session, plans)
            at = TimeColumn.of(session, table, self.time, self.timezone)
            parts = [Part("", rows_of(at, plan), plan["records"]) for plan in plans]
            return self._rows(spark, session, table, parts, attempt, labels=False)

    @property
    def fusable(self) -> bool:
        """Return True unless a subclass reads batches in another way."""
        return type(self).emit_batch is PostgresIntervalSpout.emit_batch

    def fused(self, plans: Sequence[Metadata]) -> Metadata:
        """Return one plan of all intervals."""
        return intervals.fused(plans)

    def check_plan(self, metadata: Metadata) -> None:
        """Refuse a server that has another history than the plan, or is behind."""
        with self.session() as session:
            self._checked(session, parts_of(metadata))

    def check_again(self, before: Metadata) -> None:
        """Refuse a server that has another history than the plan that was counted, or is behind."""
        self.check_plan(before)

    def late_rows(self, plans: Sequence[Metadata]) -> list[LateRows | None]:
        """Return the late and missing rows of each plan's interval; None for a plan of another table."""
        found = counts(self.identity, plans) if plans else []
        return [each and _late_rows(plan["records"], *each) for plan, each in zip(plans, found, strict=True)]

    def planned_bytes(self, metadata: Metadata) -> int:
        """Return an estimate, from the number of rows."""
        return ROW_BYTES * int(metadata["records"])

    @property
    def wanted(self) -> Timed:
        """What is planned."""
        of = type(self).__name__, self.table, self._fields
        return Timed(*of, self.time, self.timezone, self.plausible, self.accept)

    def _look(self, session: Session) -> Look:
        """Look as planning does: also whether each row has a time that is plausible."""
        return IntervalPlanner(session, self.wanted)

    @property
    def _time_type(self) -> str:
        return {field.name: field.type for field in self._fields}.get(self.time, "")


def _late_rows(counted: int, seen: int, later: int) -> LateRows:
    """Return the late and missing rows. More rows than counted in the plan's snapshot are late, too: the rows were moved."""
    changed = replaced(counted, seen, later)
    return LateRows(later - changed + max(seen - counted, 0), max(counted - seen, 0) - changed, changed)


class _Coordinator(BatchCoordinator):
    """Plans intervals; in `one_look`, all as of one snapshot."""

    def __init__(self, spout: PostgresIntervalSpout) -> None:
        self.spout = spout
        self._look = KeptLook(spout.session, lambda session: IntervalPlanner(session, spout.wanted))

    def one_look(self) -> AbstractContextManager[None]:
        """Context manager. Plans in the block are as of one snapshot."""
        return self._look.one_look()

    def initialize_transaction(
        self, txid: int, prev_metadata: Metadata | None, curr_metadata: Metadata | None
    ) -> Metadata | None:
        """Return the run's interval, with the snapshot of this look and the number of rows."""
        of = type(self.spout).__name__
        if curr_metadata is None:
            raise NoInterval(f"{of} reads by time: the run has no interval")
        if self.spout._time_type == "date":
            check_days(of, self.spout.time, curr_metadata["interval"])
        with self._look.one_plan():
            return self._look.now.plan(curr_metadata["interval"], prev_metadata)

    def close(self) -> None:
        """End the look."""
        self._look.close()
