"""Reads a range of a partition, with proof that the range is whole: a message at or past its end, or the partition's end there.

Fewer messages than offsets are normal: markers of transactions, messages of aborted ones, compaction. A range that cannot be
read from its first offset on is refused; nothing begins anew.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from txbatch.core.errors import PartitionUnreadable, RecordsGone
from txbatch.spouts.topics.client import consuming, in_our_words

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

# The offset where a range begins, and the offset where the range ends, exclusive.
Range = tuple[int, int]
# A client hands over so many messages at a time, and about so many bytes.
_MESSAGES_AT_ONCE, _BYTES_AT_ONCE = 10_000, 8_000_000
_FIRST_AT_ONCE = 500
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class TopicReader:
    """Reads ranges of a topic. The options may hold a password. `seconds`: so long a range may be silent."""

    of: str
    options: Mapping[str, Any] = field(repr=False)
    topic: str
    committed: bool
    seconds: float

    def read(self, number: int, ranges: Sequence[Range]) -> Iterator[tuple[int, Sequence[Message]]]:
        """Yield the messages of ranges of a partition, some at a time, each time with the number of the range.

        The ranges are in order, and none is empty; ranges that follow each other are read through. Raise RecordsGone if a
        beginning is no longer kept or the partition ends before a range does, PartitionUnreadable if nothing comes.
        """
        with consuming(self._place(number), self.options, committed=self.committed) as consumer:
            for first, ends in _through(ranges):
                at = 0
                for messages in self._span(consumer, number, ranges[first][0], ends[-1]):
                    left = messages
                    while left:
                        cut = bisect_left(left, ends[at], key=offset_of)
                        if cut:
                            yield first + at, left[:cut]
                        left, at = left[cut:], at + (cut < len(left))

    def count(self, number: int, start: int, end: int) -> int:
        """Return how many messages a range has."""
        return sum(len(messages) for _, messages in self.read(number, [(start, end)])) if start < end else 0

    def _span(self, consumer: Consumer, number: int, start: int, end: int) -> Iterator[Sequence[Message]]:
        """Yield the messages from one offset to another."""
        from confluent_kafka import TopicPartition

        place, at, moved, at_once = self._place(number), start, time.monotonic(), _FIRST_AT_ONCE
        consumer.assign([TopicPartition(self.topic, number, start)])
        while True:
            found = consumer.consume(at_once, _POLL_SECONDS)
            whole, messages = self._sorted(found, place, at, end)
            if messages:
                at, moved, at_once = offset_of(messages[-1]) + 1, time.monotonic(), _next_at_once(messages)
                yield messages
            if whole:
                return
            if time.monotonic() - moved > self.seconds:
                raise PartitionUnreadable(
                    f"{place}: nothing came for {self.seconds:g} s at offset {at} of {end}; try again"
                )

    def _place(self, number: int) -> str:
        return f"{self.of}, partition {number}"

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


def _through(ranges: Sequence[Range]) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield spans of ranges that follow each other: the number of the first one, and the end of each.

    >>> list(_through([(0, 2), (2, 5), (7, 9)]))
    [(0, [2, 5]), (2, [9])]
    """
    ends = list[int]()
    for number, (start, end) in enumerate(ranges):
        if ends and start != ends[-1]:
            yield number - len(ends), ends
            ends = []
        ends = [*ends, end]
    if ends:
        yield len(ranges) - len(ends), ends


def _next_at_once(messages: Sequence[Message]) -> int:
    """Return how many messages to ask for, by the size of the last ones."""
    mean = sum(map(len, messages)) // len(messages) + 1
    return max(1, min(_MESSAGES_AT_ONCE, _BYTES_AT_ONCE // mean))
