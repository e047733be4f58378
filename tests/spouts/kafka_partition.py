"""A partition of a topic as brokers keep a partition: records, markers of transactions, and gaps where records were."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kafka.record import default_records
from kafka.record.default_records import DefaultRecordBatchBuilder as Builder

MAGIC, NO_PRODUCER = 2, -1
_ABORT, _COMMIT = 0, 1
_EPOCH_OFFSET = 12
default_records.calc_crc32c = lambda _: 0  # it is written in Python: a megabyte takes a second


@dataclass(frozen=True)
class Entry:
    """A record, or the marker that ends a transaction. `time` is in milliseconds since 1970."""

    offset: int
    value: bytes | None
    key: bytes | None = None
    time: int = 0
    producer: int = NO_PRODUCER
    marker: bool = False
    epoch: int = 0

    def batch(self) -> bytes:
        """Return the record as a batch of its own. Without a checksum, which clients do not check unless told to."""
        builder = Builder(MAGIC, 0, self.producer != NO_PRODUCER, self.producer, 0, 0, 1 << 26)
        builder.append(0, self.time, self.key, self.value, [])
        made = bytearray(builder.build())
        struct.pack_into(">q", made, 0, self.offset)
        struct.pack_into(">i", made, _EPOCH_OFFSET, self.epoch)
        if self.marker:
            made[Builder.ATTRIBUTES_OFFSET + 1] |= Builder.CONTROL_MASK
        return bytes(made)


@dataclass
class Partition:
    """A log. `first` is the oldest offset that is kept, `end` the offset after the newest record, `epoch` the leader's."""

    first: int = 0
    end: int = 0
    epoch: int = 0
    entries: list[Entry] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)  # by producer: the first offset of the transaction
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer, first offset, offset of the marker

    def append(
        self, *values: bytes | None, key: bytes | None = None, time: int = 0, transaction: int = NO_PRODUCER
    ) -> None:
        """Append records, of a transaction that stays open if `transaction` is its producer."""
        if transaction != NO_PRODUCER:
            self.open.setdefault(transaction, self.end)
        for value in values:
            self._put(Entry(self.end, value, key, time, transaction))

    def finish(self, transaction: int, *, commit: bool) -> None:
        """End the transaction of a producer by a marker."""
        first = self.open.pop(transaction, self.end)
        if not commit:
            self.aborted.append((transaction, first, self.end))
        kind = struct.pack(">hh", 0, _COMMIT if commit else _ABORT)
        self._put(Entry(self.end, struct.pack(">hi", 0, 0), kind, 0, transaction, marker=True))

    def remove(self, offsets: Sequence[int]) -> None:
        """Compaction: take records out; the others keep their offsets."""
        self.entries = [each for each in self.entries if each.offset not in offsets]

    def cut_off(self, offset: int) -> None:
        """Lose all records from an offset on, as an unclean election does."""
        self.entries, self.end = [each for each in self.entries if each.offset < offset], offset
        self.epoch += 1

    def end_of(self, epoch: int) -> tuple[int, int]:
        """Return the newest epoch that had records and is not above one, and where its records end."""
        later = next((each.offset for each in self.entries if each.epoch > epoch), self.end)
        return max((each.epoch for each in self.entries if each.epoch <= epoch), default=-1), later

    def forget(self, offset: int) -> None:
        """Retention: lose all records before an offset."""
        self.entries, self.first = [each for each in self.entries if each.offset >= offset], offset

    @property
    def stable(self) -> int:
        """The last stable offset: the first of an open transaction, or the end."""
        return min(self.open.values(), default=self.end)

    def at(self, time: int) -> Entry | None:
        """Return the first record of a moment or later."""
        return next((each for each in self.entries if each.time >= time and not each.marker), None)

    def between(self, start: int, end: int, most: int) -> bytes:
        """Return the records of a range as a broker sends records: at least one, and not many more bytes than asked for."""
        found = b""
        for each in self.entries:
            if start <= each.offset < end and len(found) < most:
                found += each.batch()
        return found

    def aborted_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return producer and first offset of the aborted transactions that overlap a range."""
        return [(producer, first) for producer, first, marker in self.aborted if first < end and marker >= start]

    def _put(self, entry: Entry) -> None:
        self.entries.append(replace(entry, offset=self.end, epoch=self.epoch))
        self.end += 1
