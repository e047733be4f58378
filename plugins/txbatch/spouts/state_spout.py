"""StateSpout: the changes in a state of another topology, from a committed txid to the next; or the state's closed windows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from txbatch.core.batch.transaction import Metadata, TransactionAttempt
from txbatch.core.errors import InvalidOption, NotEmitted, OutOfPlace
from txbatch.core.records.declared import fields_ddl
from txbatch.core.records.fields import checked_name, parse_fields
from txbatch.core.records.sql import spark_name, spark_text
from txbatch.core.sources.emitter import PARTITION_COLUMN
from txbatch.core.upstream.closed_windows import check_closes, check_told, next_closed
from txbatch.core.upstream.ranges import UpstreamState, next_range
from txbatch.core.upstream.upstream import (
    CHANGES,
    FINAL,
    STATE_SPOUT,
    ExportedSpout,
    Upstream,
    check_columns,
    check_known_rows,
    check_known_windows,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txbatch.core.records.declared import Fields


class StateSpout(ExportedSpout):
    """Emits the changes in a state of the ledger since the batch before, or the state's windows closed since (R26).

    With `emit="changes"` there is a record for each changed key, the first time for all keys.

    `fields` are the columns to read from `report.changes_<state>`: the state's keys; `<value>_before` and `<value>_after` of
    each value, like in reports; `change`: 'added', 'changed' or 'removed'; `txid`, the last changing txid. Changes between
    two batches come as one. Restates and rebuilds come as changes, too.

    With `emit="final"` there is a record for each row of a closed window, once, with the values as of the closing. `fields`
    are columns of `report.closed_<state>`: the columns of `report.<state>`, and `closed_by`, the closing txid. Later or
    restated records are changes, and never final records.

    Transactional: the plan names the first and the last txid, and a state as of a txid never changes.
    """

    def __init__(self, state: str, fields: Fields, emit: str = CHANGES) -> None:
        if emit not in (CHANGES, FINAL):
            raise InvalidOption(
                f"StateSpout({state!r}): emit={emit!r} is neither 'changes', for what changes in it, nor 'final', for its "
                "windows once they are closed"
            )
        self.state, self.fields, self.emit = checked_name(state, "state"), fields_ddl(fields), emit
        self._fields = parse_fields(self.fields)

    @property
    def identity(self) -> Metadata:
        emit = {} if self.emit == CHANGES else {"emit": self.emit}
        return {"spout": STATE_SPOUT, "state": self.state, **emit}

    def partitions(self) -> Sequence[str]:
        return [self.state]

    def next_range(self, known: UpstreamState, last: Metadata | None) -> Metadata | None:
        """Return the range of txids committed since the last plan."""
        if self.emit == FINAL:
            check_closes(known)
            check_columns(known, self._fields, known.closed, "closed windows")
            return next_closed(known, last, self._asked)
        check_columns(known, self._fields, known.columns)
        return next_range(known, last)

    def checked_range(self, known: UpstreamState, range_: Metadata, upstream: Upstream) -> Metadata | None:
        """Return the range; None if the txids of the range closed no windows, and closed windows are read."""
        if self.emit == FINAL:
            return self._checked_closings(known, range_, upstream)
        check_known_rows(known, range_, upstream)
        check_known_windows(known, range_, upstream)
        return range_

    def _checked_closings(self, known: UpstreamState, range_: Metadata, upstream: Upstream) -> Metadata | None:
        closings = upstream.closings(self.state, range_)
        if not closings:
            return None
        check_told(known, range_, closings, self._asked)
        reopened = upstream.reopened(self.state, range_)
        return range_ if reopened is None else {**range_, "next_since": reopened}

    @property
    def _asked(self) -> list[str]:
        return [field.name for field in self._fields]

    def export(self, upstream: Upstream, ranges: Mapping[str, Metadata]) -> Iterable[tuple[Any, ...]]:
        """Return the changes, or the closed windows, of the range."""
        records = upstream.closed if self.emit == FINAL else upstream.changes
        return records(self.state, ranges[self.state], self._asked)

    def emit_partition_batch_new(
        self, attempt: TransactionAttempt, partition: str, last_metadata: Metadata | None
    ) -> Metadata | None:
        """Refuse: only the ledger can plan."""
        raise OutOfPlace(f"state {self.state!r} is planned by its ledger")

    def emit_partition_batch(
        self, spark: SparkSession, attempt: TransactionAttempt, partition: str, metadata: Metadata
    ) -> DataFrame:
        """Return the records exported for the attempt."""
        columns = ", ".join(f"{spark_name(field.name)} {field.type}" for field in self._fields)
        return spark.read.schema(columns).parquet(self._file)

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        """Return the exported records with the partition: the state."""
        records = self.emit_partition_batch(spark, attempt, self.state, metadata)
        return records.selectExpr("*", f"{spark_text(self.state)} as {PARTITION_COLUMN}")

    def count_records(self, partition: str, metadata: Metadata) -> int:
        """Return the number of exported records."""
        import fsspec
        import pyarrow.parquet as pq

        with fsspec.open(self._file, "rb") as file:
            return int(pq.read_metadata(file).num_rows)

    @property
    def _file(self) -> str:
        if self.exported is None:
            raise NotEmitted(f"state {self.state!r}: nothing was exported for this attempt; emit again")
        return self.exported
