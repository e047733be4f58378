"""Reads a range of a partition, with proof that the range is whole: a message at or past its end, or the partition's end there.

Fewer messages than offsets are normal: markers of transactions, messages of aborted ones, compaction. A range that cannot be
read from its first offset on is refused; nothing begins anew.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from txbatch.core.errors import PartitionUnreadable, RecordsGone, SourceCutBack, TxbatchError
from txbatch.core.garbage import without_gc
from txbatch.spouts.topics.client import consuming, in_our_words
from txbatch.spouts.topics.complaints import GRACE_SECONDS, Said

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

# A client hands over so many messages at a time, and about so many bytes.
_MESSAGES_AT_ONCE, _BYTES_AT_ONCE = 10_000, 8_000_000
_FIRST_AT_ONCE = 500
# A client waits so long for a message, and then for more: it returns early only with as many as were asked for.
_FIRST_SECONDS, _MORE_SECONDS = 0.5, 0.02
# What a client says of a group that is never joined.
_OF_GROUPS = ("GROUP_AUTHORIZATION_FAILED", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")


class Range(NamedTuple):
    """Where a range begins and ends, exclusive, and the leader's epoch before `start`, if known: then the log is asked whether
    it was cut off below `start` since.
    """

    start: int
    end: int
    epoch: int = -1


# The numbers of ranges, in their order, each with how many of some messages belong to the range.
Shares = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class TopicReader:
    """Reads ranges of a topic. The options may hold a password. `seconds`: so long a range may be silent."""

    of: str
    options: Mapping[str, Any] = field(repr=False)
    topic: str
    committed: bool
    seconds: float

    def read(self, number: int, ranges: Sequence[Range]) -> Iterator[tuple[Shares, Sequence[Message]]]:
        """Yield the messages of ranges of a partition, some at a time, each time with the shares of the ranges.

        The ranges are in order, and none is empty; ranges that follow each other are read through. Raise RecordsGone if a
        beginning is no longer kept or the partition ends before a range does, SourceCutBack if the log was cut off below a
        range, PartitionUnreadable if nothing comes. Until the end Python looks for no cycles: a search through messages, which
        have none, takes as long as reading the messages.
        """
        place, fetched = f"{self.of}, partition {number}", _Fetched(number)
        with consuming(place, self.options, committed=self.committed, told=fetched) as (consumer, said), without_gc():
            for first, ends in _through(ranges):
                for messages in self._span(
                    consumer, _Span(place, ranges[first], ends[-1], self.seconds, fetched, said)
                ):
                    yield list(_shares(messages, first, ends)), messages

    def count(self, number: int, range_: Range) -> int:
        """Return how many messages a range has."""
        return sum(len(messages) for _, messages in self.read(number, [range_])) if range_.start < range_.end else 0

    def _span(self, consumer: Consumer, span: _Span) -> Iterator[Sequence[Message]]:
        """Yield the messages from one offset to another."""
        from confluent_kafka import TopicPartition

        begin = (span.first.start, "", span.first.epoch) if span.first.epoch >= 0 else (span.first.start,)
        consumer.assign([TopicPartition(self.topic, span.fetched.number, *begin)])
        at_once = _FIRST_AT_ONCE
        while not span.whole:
            found = consumer.consume(1, _FIRST_SECONDS)
            if found and (more := min(at_once, span.end - span.at) - 1):
                found += consumer.consume(more, _MORE_SECONDS)
            messages = span.take(found)
            if messages:
                at_once = _next_at_once(messages)
                yield messages
            span.check(came=bool(messages))


class _Fetched:
    """How far a client has fetched, as its statistics say: messages of aborted transactions are fetched and never come."""

    def __init__(self, number: int) -> None:
        self.number, self.offset = number, -1

    def __call__(self, statistics: str) -> None:
        """Take the statistics of a client with one partition."""
        for topic in json.loads(statistics)["topics"].values():
            self.offset = topic["partitions"].get(str(self.number), {}).get("next_offset", self.offset)


class _Span:
    """Ranges that are read through: what has come, and whether the span is whole."""

    def __init__(self, place: str, first: Range, end: int, seconds: float, fetched: _Fetched, said: Said) -> None:
        self.place, self.first, self.end, self.seconds, self.fetched, self.said = (
            place,
            first,
            end,
            seconds,
            fetched,
            said,
        )
        self.at, self.whole, self._ended = first.start, False, -1
        self._moved, self._fetched = time.monotonic(), fetched.offset

    def take(self, found: Sequence[Message]) -> list[Message]:
        """Return the messages of the span. The span is whole if a message or the partition's end is at its end or later."""
        from confluent_kafka import Message

        if any(map(Message.error, found)):
            messages = self._sorted(found)
        else:
            cut = bisect_left(found, self.end, key=offset_of)
            messages, self.whole = list(found[:cut]), cut < len(found)
        if messages:
            self.at = offset_of(messages[-1]) + 1
        self.whole = self.whole or self.at == self.end
        return messages

    def _sorted(self, found: Sequence[Message]) -> list[Message]:
        """Return the messages of the span before the first event that ends or refuses the span."""
        messages = list[Any]()
        for each in found:
            error = each.error()
            if error is None and offset_of(each) < self.end:
                messages.append(each)
            elif error is None or (error.name() == "_PARTITION_EOF" and offset_of(each) >= self.end):
                self.whole = True
                break
            elif error.name() == "_PARTITION_EOF":
                self._ended = offset_of(each)
            elif error.name() not in _OF_GROUPS:
                raise self._refused(error, messages)
        return messages

    def check(self, *, came: bool) -> None:
        """Raise the reason if nothing has come, or was fetched, for too long. Called once messages are handed on."""
        if came or self.fetched.offset != self._fetched:
            self._moved, self._fetched = time.monotonic(), self.fetched.offset
        silent = time.monotonic() - self._moved
        if not self.whole and silent > GRACE_SECONDS:
            self.said.check(self.place)
        if self.whole or silent <= self.seconds:
            return
        if 0 <= self._ended < self.end:
            raise RecordsGone(
                f"{self.place}: ends at {self._ended}, before {self.end}, where the planned range ends: it was cut off; "
                "restore it, or abort the batch"
            )
        raise PartitionUnreadable(
            f"{self.place}: nothing came for {self.seconds:g} s at offset {self.at} of {self.end}; try again, or give the "
            "spout a longer silence="
        )

    def _refused(self, error: Any, messages: Sequence[Message]) -> TxbatchError:
        if error.name() != "_AUTO_OFFSET_RESET":
            return in_our_words(self.place, error)
        if "truncation" in error.str():
            return SourceCutBack(
                f"{self.place}: was cut off below offset {self.first.start}, up to which it is counted, and has other messages "
                "there now: restore it, or read it with a new topology"
            )
        lost = offset_of(messages[-1]) + 1 if messages else self.at
        return RecordsGone(
            f"{self.place}: offset {lost} is no longer kept, or was cut off; restore it, or abort the batch: the next plan "
            "says what is left"
        )


def offset_of(message: Message) -> int:
    """Return the offset of a message, or of the end of a partition."""
    return int(message.offset() or 0)


def _through(ranges: Sequence[Range]) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield spans of ranges that follow each other: the number of the first one, and the end of each.

    >>> list(_through([Range(0, 2), Range(2, 5), Range(7, 9)]))
    [(0, [2, 5]), (2, [9])]
    """
    ends = list[int]()
    for number, each in enumerate(ranges):
        if ends and each.start != ends[-1]:
            yield number - len(ends), ends
            ends = []
        ends.append(each.end)
    if ends:
        yield len(ranges) - len(ends), ends


def _shares(messages: Sequence[Message], first: int, ends: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the number of each range that has some of the messages, and how many. `ends` are of ranges that follow each other,
    from number `first` on.
    """
    done, at = 0, bisect_right(ends, offset_of(messages[0]))
    while done < len(messages):
        cut = bisect_left(messages, ends[at], done, key=offset_of)
        if cut > done:
            yield first + at, cut - done
        done, at = cut, at + 1


def _next_at_once(messages: Sequence[Message]) -> int:
    """Return how many messages to ask for, by the size of the last ones."""
    mean = sum(map(len, messages)) // len(messages) + 1
    return max(1, min(_MESSAGES_AT_ONCE, _BYTES_AT_ONCE // mean))
