"""The source of mixed histories: records of words, some of which fail, by offset or by intervals of when they were seen."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple

from support import ListSpout, LogSpout

from txbatch import PartitionUnreadable, SpoutKind
from txbatch.core.batch.transaction import Batch, Interval
from txbatch.core.records.time_buckets import micros_of

BEGIN, MINUTE, DELAY = datetime(2026, 1, 5, tzinfo=UTC), timedelta(minutes=1), timedelta(minutes=30)
WORDS = "abc"
FIELDS = "at timestamp, word string, good boolean"


class Record(NamedTuple):
    at: datetime
    word: str
    good: bool


def parsed(record: Mapping[str, Any]) -> bool:
    """What each record goes through: some are bad."""
    if not record["good"]:
        raise ValueError("it is bad")
    return True


def drawn(random: Random, now: datetime, behind: int = 110) -> Record:
    """A record of about now; some are so much behind, in minutes, that they are late."""
    minutes = random.randint(0, behind) if random.random() < 0.3 else random.randint(0, 20)
    return Record(now - (minutes - minutes % 5) * MINUTE, random.choice(WORDS), random.random() > 0.12)


def mended(random: Random, record: Record) -> Record:
    """The same record, as it should have been."""
    moved = record.at + 5 * random.randint(-8, 8) * MINUTE
    return Record(moved, random.choice(WORDS), record.good or random.random() < 0.5)


class ByOffset(LogSpout):
    """Two partitions, of which a batch takes three records each. One may be away."""

    fields = FIELDS

    def __init__(self, random: Random) -> None:
        super().__init__({"a": 0, "b": 0}, size=3, kind=SpoutKind.OPAQUE)
        self.random, self.now = random, BEGIN
        self.log: dict[str, list[Record]] = {"a": [], "b": []}
        self.away: set[str] = set()
        self.given: list[Record] = []

    def arrive(self) -> None:
        """Time goes on, and some records come."""
        for name in self.random.choice(["a", "b", "ab", "ab"]):
            for _ in range(self.random.randint(1, 3)):
                self.now += 5 * self.random.randint(0, 3) * MINUTE
                self.log[name].append(drawn(self.random, self.now))
                self.lengths[name] += 1

    def batch(self, plan: Mapping[str, Any]) -> list[Record]:
        ((name, of),) = plan["partitions"].items()
        if name in self.away:
            raise PartitionUnreadable(f"{name} is away")
        found = self.log[name][of["start"] : of["end"]]
        self.given += found
        return found

    def planned(self, batch: Batch) -> list[Record]:
        """What a batch is to read."""
        ranges = batch.plan.streams["in"].ranges
        return [each for name, of in ranges.items() for each in self.log[name][of["start"] : of["end"]]]

    def late_before(self, batch: Batch) -> int | None:
        """By what its records are late, as its plan says; None: none is."""
        return batch.plan.watermark.get("in")

    def mend(self, batch: Batch) -> None:
        """Some records that a batch has read are others by now."""
        for name, of in batch.plan.streams["in"].ranges.items():
            for number in range(of["start"], of["end"]):
                if self.random.random() < 0.5:
                    self.log[name][number] = mended(self.random, self.log[name][number])


class BySeen(ListSpout):
    """The same by intervals of twenty minutes in which they were seen; windows are by another time."""

    by_interval, time, fields = True, "seen", FIELDS

    def __init__(self, random: Random) -> None:
        super().__init__(kind=SpoutKind.OPAQUE)
        self.random, self.now = random, BEGIN
        self.log: dict[datetime, list[Record]] = {}
        self.away: set[str] = set()
        self.given: list[Record] = []

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        return {"interval": curr_metadata["interval"]}

    def arrive(self) -> None:
        """An interval is over."""
        end = self.now + 20 * MINUTE
        self.log[self.now] = [drawn(self.random, end, 150) for _ in range(self.random.randint(0, 6))]
        self.now = end

    def free(self, taken: set[datetime]) -> list[Interval]:
        """The intervals that no batch has."""
        return [Interval(begin, begin + 20 * MINUTE) for begin in sorted(self.log.keys() - taken)]

    def batch(self, plan: Mapping[str, Any]) -> list[Record]:
        found = self.log[datetime.fromisoformat(plan["interval"][0])]
        self.given += found
        return found

    def planned(self, batch: Batch) -> list[Record]:
        return self.log[begin_of(batch)]

    def late_before(self, batch: Batch) -> int:
        """The start of its interval says it, and nothing else."""
        return micros_of(begin_of(batch) - DELAY)

    def mend(self, batch: Batch) -> None:
        log = self.log[begin_of(batch)]
        log[:] = [mended(self.random, each) if self.random.random() < 0.5 else each for each in log]


def begin_of(batch: Batch) -> datetime:
    """Return when the interval of a batch begins."""
    return datetime.fromisoformat(batch.plan.streams["in"].plan["interval"][0])
