"""Reads a range of a partition, with proof that the range is whole: a message at or past its end, or the partition's end there.

Fewer messages than offsets are normal: markers of transactions, messages of aborted ones, compaction. A range that cannot be
read from its first offset on is refused; nothing begins anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from txbatch.core.errors import PartitionUnreadable, RecordsGone
from txbatch.spouts.topics.client import consuming, in_our_words

if TYPE_CHECKING:
    from confluent_kafka import Message

AT_ONCE = 10_000
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class TopicReader:
    """Reads ranges of a topic. The options may hold a password. `seconds`: so long a range may be silent."""

    of: str
    options: Mapping[str, Any] = field(repr=False)
    topic: str
    committed: bool
    seconds: float

    def read(self, number: int, start: int, end: int) -> Iterator[Sequence[Message]]:
        """Yield the messages of a range, some at a time, in order.

        Raise RecordsGone if the range's beginning is no longer kept or the partition ends before the range does,
        PartitionUnreadable if nothing comes.
        """
        if start >= end:
            return
        from confluent_kafka import TopicPartition

        place, at, moved = f"{self.of}, partition {number}", start, time.monotonic()
        with consuming(place, self.options, committed=self.committed) as consumer:
            consumer.assign([TopicPartition(self.topic, number, start)])
            while True:
                found = consumer.consume(AT_ONCE, _POLL_SECONDS)
                whole, messages = self._sorted(found, place, at, end)
                if messages:
                    at, moved = offset_of(messages[-1]) + 1, time.monotonic()
                    yield messages
                if whole:
                    return
                if time.monotonic() - moved > self.seconds:
                    raise PartitionUnreadable(
                        f"{place}: nothing came for {self.seconds:g} s at offset {at} of {end}; try again"
                    )

    def count(self, number: int, start: int, end: int) -> int:
        """Return how many messages a range has."""
        return sum(map(len, self.read(number, start, end)))

    def _sorted(self, found: Sequence[Message], place: str, at: int, end: int) -> tuple[bool, list[Message]]:
        """Return whether the range is whole by what was found, and the messages of the range."""
        if not any(map(_error, found)):
            if found and offset_of(found[-1]) >= end:
                return True, [each for each in found if offset_of(each) < end]
            return bool(found) and offset_of(found[-1]) == end - 1, list(found)
        messages = list[Any]()
        for each in found:
            error = each.error()
            if error is None and offset_of(each) < end:
                messages.append(each)
            elif error is None or (error.name() == "_PARTITION_EOF" and offset_of(each) >= end):
                return True, messages
            elif error.name() == "_PARTITION_EOF":
                raise RecordsGone(
                    f"{place}: ends at {offset_of(each)}, before {end}, where the planned range ends: it was cut off; "
                    "restore it, or abort the batch"
                )
            elif error.name() == "_AUTO_OFFSET_RESET":
                lost = offset_of(messages[-1]) + 1 if messages else at
                raise RecordsGone(
                    f"{place}: offset {lost} is no longer kept, or was cut off; restore it, or abort the batch: the next "
                    "plan says what is left"
                )
            else:
                raise in_our_words(place, error)
        return bool(messages) and offset_of(messages[-1]) == end - 1, messages


def offset_of(message: Message) -> int:
    """Return the offset of a message, or of the end of a partition."""
    return int(message.offset() or 0)


def _error(message: Message) -> Any:
    return message.error()
