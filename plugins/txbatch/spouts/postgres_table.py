"""PostgresSpout: the rows of a table in PostgreSQL that grows, each row once, whole transactions in a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from txbatch.core.batch.transaction import Metadata, TransactionAttempt
from txbatch.core.errors import InvalidOption
from txbatch.core.sources.labels import labelled
from txbatch.core.sources.spout import PartitionedCoordinator, PartitionedSpout
from txbatch.spouts.tables import description
from txbatch.spouts.tables.planning import KeptLook, Planner, Wanted
from txbatch.spouts.tables.reads_table import ROW_BYTES, ReadsTable
from txbatch.spouts.tables.stretches import Part
from txbatch.spouts.tables.windows import any_of, conditions, counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txbatch.core.records.declared import Fields

# The partition of the rows from before the column xact.
BEFORE = "@before"


class PostgresSpout(ReadsTable, PartitionedSpout):
    """Reads the rows that are added to a table of PostgreSQL, by their transactions: each row once, and no transaction in part.

    `table` is `schema.table`, prepared by `txbatch source prepare`; `fields` name columns, with types that take their values.
    `source` is the name of the database: its URL is in TXBATCH_SOURCE_<NAME>, or in the Airflow connection
    txbatch_source_<name>. A batch has at most `max_rows` rows, unless one transaction has more.

    Rows from before the table was prepared are a partition of their own, read by ranges of the primary key; with
    `existing=False` they are left out. `timezone` says which zone a `timestamp without time zone` is in. `accept` names what an
    error about another history or other rows asks to accept.

    Transactional: a row that is updated or deleted after its batch was planned makes the batch's next attempt fail.
    """

    _spout = "PostgresSpout"

    def __init__(
        self,
        table: str,
        fields: Fields,
        *,
        source: str,
        max_rows: int = 1_000_000,
        timezone: str | None = None,
        existing: bool = True,
        accept: str | Sequence[str] = (),
    ) -> None:
        super().__init__(table, fields, source, timezone, accept)
        self.max_rows, self.existing = max_rows, existing
        self._check()

    @property
    def identity(self) -> Metadata:
        told = {"spout": self._spout, "source": self.source, "table": self.table, "existing": self.existing}
        return told | ({"timezone": self.timezone} if self.timezone else {})

    def partitions(self) -> Sequence[str]:
        return [self.table, *([self.table + BEFORE] if self.existing else [])]

    def partitions_to_ask(self, known: Mapping[str, Metadata]) -> Sequence[str]:
        """Return the table, and the rows from before until their last range was read."""
        return [name for name in self.partitions() if not known.get(name, {}).get("ended")]

    def coordinator(self) -> PartitionedCoordinator:
        return _Coordinator(self)

    def emit_partition_batch_new(
        self, attempt: TransactionAttempt, partition: str, last_metadata: Metadata | None
    ) -> Metadata | None:
        with self.session() as session:
            return self.next_range(Planner(session, self.wanted), partition, last_metadata, {})

    def next_range(
        self, planner: Planner, partition: str, last: Metadata | None, known: Mapping[str, Metadata]
    ) -> Metadata | None:
        """Return a partition's next range; `known` has the last ranges of both partitions, which must leave out the same."""
        if last is not None:
            planner.check(last)
        of_table, of_before = known.get(self.table), known.get(self.table + BEFORE)
        before = planner.before
        if of_table is not None:
            before = int(of_table["but"]) if "but" in of_table else None
        elif of_before is not None:
            before = int(of_before["xact"])
        if partition == self.table:
            return planner.next_window(last, before)
        return None if before is None else planner.next_key(last, before)

    def emit_partition_batch(
        self, spark: SparkSession, attempt: TransactionAttempt, partition: str, metadata: Metadata
    ) -> DataFrame:
        """Return the rows of a range."""
        return self.emit_batch(spark, attempt, {"partitions": {partition: metadata}})

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        """Return the rows of all ranges, by tasks with a connection each. Refuse a server with another history."""
        ranges: Mapping[str, Metadata] = metadata["partitions"]
        parts = [Part(label, any_of(conditions(of)), rows_of(of)) for label, of in ranges.items()]
        with self.session() as session:
            return self._rows(spark, session, self._checked(session, ranges.values()), parts, attempt, labels=True)

    @property
    def fusable(self) -> bool:
        """Return True unless a subclass reads batches in another way."""
        return type(self).emit_batch is PostgresSpout.emit_batch

    def fused(self, plans: Sequence[Metadata]) -> Metadata:
        """Return one plan of all ranges: batches of a table are read by one job."""
        return labelled(plans)

    def count_records(self, partition: str, metadata: Metadata) -> int:
        """Return how many rows a range has now."""
        with self.session() as session:
            return int(session.row(counted(description.sql_name(self.table), conditions(metadata)))[0])

    def plan_again(self, partition: str, metadata: Metadata) -> Metadata:
        """Return the same range, with the number of rows as of now. Refuse a server with another history."""
        with self.session() as session:
            self._checked(session, [metadata])
            records = session.row(counted(description.sql_name(self.table), conditions(metadata)))[0]
        return {**metadata, "about" if self.changing else "records": records}

    def check_plan(self, metadata: Metadata) -> None:
        """Refuse a server that has another history than the plan, or is behind."""
        with self.session() as session:
            self._checked(session, metadata["partitions"].values())

    def planned_bytes(self, metadata: Metadata) -> int:
        """Return an estimate, from the number of rows."""
        return ROW_BYTES * sum(rows_of(range_) for range_ in metadata["partitions"].values())

    @property
    def wanted(self) -> Wanted:
        """What is planned."""
        return Wanted(self.table, self._fields, self.max_rows, self.timezone, self.existing, self.accept, self.changing)

    def _check(self) -> None:
        if type(self.max_rows) is not int or self.max_rows < 1:
            raise InvalidOption(f"{self._spout}: max_rows={self.max_rows!r} is no number of rows; give 1 or more")
        if not isinstance(self.existing, bool):
            raise InvalidOption(f"{self._spout}: existing={self.existing!r} is neither True nor False")


def rows_of(range_: Metadata) -> int:
    """Return how many rows a range had when it was planned."""
    return int(range_.get("records", range_.get("about", 0)))


class _Coordinator(PartitionedCoordinator):
    """Plans a table by one look at its server, also for several txids."""

    spout: PostgresSpout

    def __init__(self, spout: PostgresSpout) -> None:
        super().__init__(spout)
        self._look = KeptLook(spout.session, lambda session: Planner(session, spout.wanted))

    @contextmanager
    def one_look(self) -> Iterator[None]:
        """Context manager. Plans in the block are cut out of one snapshot."""
        with self._look.one_look(), super().one_look():
            yield

    def initialize_transaction(
        self, txid: int, prev_metadata: Metadata | None, curr_metadata: Metadata | None
    ) -> Metadata | None:
        """Return the ranges, as of one look."""
        with self._look.one_plan():
            return super().initialize_transaction(txid, prev_metadata, curr_metadata)

    def ask(self, txid: int, partition: str, last: Metadata | None) -> Metadata | None:
        """Plan a partition's next range by the look of this plan."""
        return self.spout.next_range(self._look.now, partition, last, self.offsets)

    def close(self) -> None:
        """End the look."""
        self._look.close()
