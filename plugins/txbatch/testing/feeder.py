"""Spouts fed by a test (Trident's FeederBatchSpout): each call of `feed` is a batch, or a partition's part of a batch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from txbatch.arrow import arrow_array
from txbatch.core.batch.transaction import Metadata, TransactionAttempt
from txbatch.core.errors import (
    BadRecord,
    InvalidArgument,
    InvalidOption,
    OutOfPlace,
    OutOfRange,
    PartitionUnreadable,
)
from txbatch.core.records.declared import fields_ddl, given_values
from txbatch.core.records.fields import Field, parse_fields
from txbatch.core.sources.batch_spout import PlainSpout
from txbatch.core.sources.spout import PartitionedSpout, Spout, SpoutKind
from txbatch.core.text import RECORD_MAX, one_line
from txbatch.direct.functions import record_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txbatch.core.records.declared import Fields

Values = tuple[Any, ...]


class Feeder(Spout):
    """The common base of both feeders. `kind` is transactional, opaque or non_transactional."""

    def __init__(self, fields: Fields, kind: str) -> None:
        if kind not in [*SpoutKind]:
            raise InvalidOption(f"{type(self).__name__}: kind is {kind!r}; it is one of {', '.join(SpoutKind)}")
        self.fields, self.kind = fields_ddl(fields), SpoutKind(kind)

    @property
    def identity(self) -> Metadata:
        return {"spout": type(self).__name__}

    @abstractmethod
    def batch(self, metadata: Metadata) -> Sequence[Values]:
        """Return the records of the metadata, for the in-memory twin."""

    def _checked(self, record: Any) -> Values:
        """Return the values of a record in the forms of `given_values`. Raise BadRecord if the record misfits the spout's
        fields.
        """
        fields = parse_fields(self.fields)
        values = given_values(record, [field.name for field in fields])
        if values is None:
            raise BadRecord(
                f"{type(self).__name__}: record {one_line(repr(record), RECORD_MAX)} has not the fields {self.fields!r}"
            )
        for value, field in zip(values, fields, strict=True):
            arrow_array([value], field, f"{type(self).__name__} was fed")
            self._check_year(value, field)
        return values

    def _check_year(self, value: Any, field: Field) -> None:
        try:
            record_of([value], [field])
        except OverflowError as error:
            raise OutOfRange(
                f"{type(self).__name__} was fed {value!r} for {field.name!r}, declared {field.type}: it is outside the years "
                "1 to 9999 in UTC; convert it there, or declare another type"
            ) from error


class FeederBatchSpout(PlainSpout, Feeder):
    """A source without partitions, of any kind: each `feed` is a batch.

    With `time`, the name of a field, the source is read by interval: a batch has all records of the run's interval fed before
    planning. An attempt at a non-transactional source reads all unread records: a retry reads different records.
    """

    def __init__(self, fields: Fields, *, kind: str = "transactional", time: str | None = None) -> None:
        super().__init__(fields, kind)
        self.time, self.by_interval = time, time is not None
        self._at = self._field(time) if time is not None else 0
        self._fed: list[list[Values]] = []
        self._read = 0
        self._away = False

    def feed(self, *records: Any) -> None:
        """Give the records of the next batch: tuples, lists, mappings, dataclasses, or bare values of a single field; or
        none.
        """
        self._fed.append(self._all(records))

    def mend(self, number: int, *records: Any) -> None:
        """Replace the records of the `number`th feed (from 1 on), like somebody who mends a source."""
        _at(self._fed, number)
        self._fed[number - 1] = self._all(records)

    def take_away(self) -> None:
        """Begin an outage: neither planning nor an attempt can read."""
        self._away = True

    def give_back(self) -> None:
        """End the outage."""
        self._away = False

    def initialize_transaction(
        self, txid: int, prev_metadata: Metadata | None, curr_metadata: Metadata | None
    ) -> Metadata | None:
        """Plan the next feed. By interval, plan all feeds until now; for a non-transactional source, plan nothing."""
        self._check_there()
        if self.kind is SpoutKind.NON_TRANSACTIONAL and not self.by_interval:
            return {} if self._read < len(self._fed) else None
        if self.by_interval:
            return {**(curr_metadata or {}), "fed": len(self._fed)}
        start = prev_metadata["end"] if prev_metadata else 0
        return {"start": start, "end": start + 1} if start < len(self._fed) else None

    def batch(self, metadata: Metadata) -> Sequence[Values]:
        """Return the records of the metadata."""
        self._check_there()
        if "interval" in metadata:
            start, end = map(datetime.fromisoformat, metadata["interval"])
            fed = (record for each in self._fed[: metadata["fed"]] for record in each)
            return [record for record in fed if start <= _moment(record[self._at]) < end]
        if metadata:
            return [record for each in self._fed[metadata["start"] : metadata["end"]] for record in each]
        unread, self._read = self._fed[self._read :], len(self._fed)
        return [record for each in unread for record in each]

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        """Raise DefinitionError: a driver of Spark was fed nothing."""
        _not_in_spark(self)

    def _all(self, records: Sequence[Any]) -> list[Values]:
        checked = [self._checked(record) for record in records]
        if self.time is not None and any(record[self._at] is None for record in checked):
            raise BadRecord(f"FeederBatchSpout: a record has no {self.time}, so it is in no interval")
        return checked

    def _field(self, time: str) -> int:
        times = [field.name if field.type in ("timestamp", "date") else None for field in parse_fields(self.fields)]
        if time not in times:
            raise InvalidOption(f"FeederBatchSpout: time={time!r} is no timestamp or date among {self.fields!r}")
        return times.index(time)

    def _check_there(self) -> None:
        if self._away:
            raise PartitionUnreadable("FeederBatchSpout was taken away; give it back, and run again")


class FeederPartitionedSpout(PartitionedSpout, Feeder):
    """A source with partitions, transactional or opaque: a batch has the next `feed` of each partition.

    A partition taken away fails the partition's batch; an opaque spout leaves the partition out of the batch.
    """

    def __init__(self, fields: Fields, *, kind: str = "transactional", max_partitions: int | None = None) -> None:
        super().__init__(fields, kind)
        if self.kind is SpoutKind.NON_TRANSACTIONAL:
            raise InvalidOption("FeederPartitionedSpout keeps offsets; a non-transactional one is a FeederBatchSpout")
        self.max_partitions = max_partitions
        self._fed: dict[str, list[list[Values]]] = {}
        self._away: set[str] = set()

    def feed(self, *records: Any, partition: str) -> None:
        """Give the partition's records of the next batch: tuples, lists, mappings, dataclasses, or bare values of a single
        field.
        """
        self._fed.setdefault(partition, []).append([self._checked(record) for record in records])

    def mend(self, number: int, *records: Any, partition: str) -> None:
        """Replace the records of the partition's `number`th feed (from 1 on), like somebody who mends a source."""
        _at(self._known(partition), number)
        self._fed[partition][number - 1] = [self._checked(record) for record in records]

    def take_away(self, partition: str) -> None:
        """Begin an outage of the partition: known, but unreadable."""
        self._known(partition)
        self._away.add(partition)

    def give_back(self, partition: str) -> None:
        """End the outage."""
        self._away.discard(partition)

    def partitions(self) -> Sequence[str]:
        return list(self._fed)

    def emit_partition_batch_new(
        self, attempt: TransactionAttempt, partition: str, last_metadata: Metadata | None
    ) -> Metadata | None:
        """Plan the partition's next feed."""
        self._check_there(partition)
        start = last_metadata["end"] if last_metadata else 0
        return {"start": start, "end": start + 1} if start < len(self._fed[partition]) else None

    def plan_again(self, partition: str, metadata: Metadata) -> Metadata:
        """Return the range unchanged. Raise PartitionUnreadable while the partition is away."""
        self._check_there(partition)
        return metadata

    def batch(self, metadata: Metadata) -> Sequence[Values]:
        """Return the records of all ranges. Raise PartitionUnreadable if a partition is away."""
        for partition in metadata["partitions"]:
            self._check_there(partition)
        ranges = metadata["partitions"].items()
        fed = (each for name, range_ in ranges for each in self._fed[name][range_["start"] : range_["end"]])
        return [record for each in fed for record in each]

    def emit_partition_batch(
        self, spark: SparkSession, attempt: TransactionAttempt, partition: str, metadata: Metadata
    ) -> DataFrame:
        """Raise DefinitionError: a driver of Spark was fed nothing."""
        _not_in_spark(self)

    def _known(self, partition: str) -> list[list[Values]]:
        if partition not in self._fed:
            known = ", ".join(map(repr, self._fed)) or "none"
            raise InvalidArgument(f"FeederPartitionedSpout has no partition {partition!r}; {known} was fed")
        return self._fed[partition]

    def _check_there(self, partition: str) -> None:
        if partition in self._away:
            raise PartitionUnreadable(f"partition {partition!r} was taken away; give it back, and run again")


def _at(fed: Sequence[Any], number: int) -> None:
    if not 1 <= number <= len(fed):
        raise InvalidArgument(f"there is no feed {number}; there are {len(fed)}, counted from 1 on")


def _moment(time: date) -> datetime:
    """Return the moment of a time, in UTC for a date or a time without a zone."""
    if not isinstance(time, datetime):
        return datetime(time.year, time.month, time.day, tzinfo=UTC)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _not_in_spark(spout: Spout) -> NoReturn:
    raise OutOfPlace(f"{type(spout).__name__} is fed in the process of a test; run it by submit_topology, not in Spark")
