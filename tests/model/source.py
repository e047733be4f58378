"""The source that the model reads: a log whose records can be told apart in every sum."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from support import Keyed, LogSpout, word_count

from txbatch import OpaqueState, PartitionUnreadable, SpoutKind, Topology, TransactionalState
from txbatch.core.batch.transaction import Metadata, TransactionAttempt

STREAM, ALL = "words", "all"
Record = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Size:
    """How far an exploration goes: it stops planning at `txids`, and issuing attempts at `attempts` for each of them.

    `runs` ask for batches; each may also find one abandoned and adopt it. `late` partitions are not there at first. Each
    partition has `records`, one for every txid unless told otherwise. `apart`: the state is in another database (R21).
    """

    txids: int
    attempts: int
    partitions: int
    kind: SpoutKind = SpoutKind.TRANSACTIONAL
    max_pending: int = 1
    runs: int = 2
    late: int = 0
    records: int = 0
    apart: bool = False

    def __str__(self) -> str:
        late = f" ({self.late} late)" if self.late else ""
        apart = ", state apart" if self.apart else ""
        return (
            f"{self.txids} txids x {self.attempts} attempts x {self.partitions} partitions{late}, {self.kind}, "
            f"max_pending {self.max_pending}, {self.runs} runs{apart}"
        )


class Weights:
    """What records add up to, so that each can be told apart in the sum: it weighs a power of ten."""

    records_each = 0
    late: Sequence[str] = ()
    away: Collection[str] = ()

    def fold(self, records: Iterable[Record]) -> dict[tuple[str, ...], int]:
        """What these records add up to: a digit 0 was lost, a digit 2 counted twice.

        One key is in every batch, the others come and go with their partition. Where each partition has `records_each`,
        also the one in every batch has a digit for each record; else it counts them.
        """
        sums: dict[tuple[str, ...], int] = {}
        for partition, offset in records:
            place = (ord(partition) - ord("a")) * self.records_each + offset if self.records_each else 0
            for key, weight in (((partition or STREAM,), 10**offset), ((ALL,), 10**place)):
                sums[key] = sums.get(key, 0) + weight
        return sums

    def partials(self, records: Iterable[Record]) -> list[Keyed]:
        """The same as Spark would stage it."""
        return [(key, (value,)) for key, value in sorted(self.fold(records).items())]


class Log(Weights, LogSpout):
    """A log. Partitions that are `away` cannot be read."""

    def appear(self, partition: str) -> None:
        """A partition that was not there before (R14)."""
        self.lengths[partition] = self.records_each

    def emit_partition_batch_new(
        self, attempt: TransactionAttempt, partition: str, last_metadata: Metadata | None
    ) -> Metadata | None:
        if partition in self.away:
            raise PartitionUnreadable(f"{partition} is away")
        return super().emit_partition_batch_new(attempt, partition, last_metadata)

    def records(self) -> frozenset[Record]:
        """Everything there is."""
        return frozenset((name, offset) for name, length in self.lengths.items() for offset in range(length))


class Source(Log):
    """The log of a size: each range takes one record."""

    def __init__(self, size: Size) -> None:
        names = [chr(ord("a") + number) for number in range(size.partitions)]
        self.records_each = size.records or size.txids
        self.late = names[size.partitions - size.late :]
        super().__init__(dict.fromkeys(names[: size.partitions - size.late], self.records_each), size=1, kind=size.kind)


def records_of(ranges: Mapping[str, Metadata], without: Collection[str] = ()) -> frozenset[Record]:
    """The records that ranges name, but for those of some partitions."""
    return frozenset(
        (name, offset)
        for name, range_ in ranges.items()
        if name not in without
        for offset in range(range_["start"], range_["end"])
    )


def topology_of(size: Size, source: Source, name: str) -> Topology:
    """Transactional spout with transactional state, or opaque with opaque: the two exactly-once pairs (R11)."""
    states: dict[SpoutKind, Any] = {SpoutKind.TRANSACTIONAL: TransactionalState, SpoutKind.OPAQUE: OpaqueState}
    state = states[size.kind](name, database="warehouse" if size.apart else None)
    return word_count(source, name, state=state, max_pending=size.max_pending)
