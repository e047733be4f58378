"""What a mixed history amounts to: reckoned anew from the records of all versions that count, with nothing folded or stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from model.mixed_source import Record
from pairs import Cell

from txbatch.core.records.time_buckets import micros_of, time_of

CELL, GAP, AFTER = 40 * 60_000_000, 15 * 60_000_000, 1
Key = tuple[datetime, str]


@dataclass(frozen=True)
class Window:
    """Of a word: its first and its last time, when it ends, and how many records it has; in microseconds."""

    first: int
    last: int
    end: int
    n: int

    def cells(self, word: str) -> set[Cell]:
        """The cells that it reaches over."""
        return {(word, number) for number in range(self.first // CELL, self.last // CELL + 1)}


Windows = dict[Key, Window]


@dataclass(frozen=True)
class Version:
    """What counts of a position: by which txid, what it read, and by what that was late."""

    txid: int
    records: tuple[Record, ...]
    mark: int | None


def cell(record: Record) -> Cell:
    return record.word, micros_of(record.at) // CELL


def cells(records: Iterable[Record]) -> set[Cell]:
    return {cell(each) for each in records}


@dataclass
class Plain:
    """All that counts now, by position. `bases` has the number of the first record of each."""

    sessions: bool
    late: str
    versions: dict[int, Version] = field(default_factory=dict)
    bases: dict[int, int] = field(default_factory=dict)

    def commit(self, position: int, version: Version, base: int | None) -> set[Cell]:
        """A txid counts for its position; return the cells of it, and of what counted there before."""
        old = self.versions.get(position)
        self.versions[position] = version
        if base is not None:
            self.bases.setdefault(position, base)
        return cells(version.records) | (cells(old.records) if old else set())

    def rebuilt(self, counted: dict[int, tuple[Record, ...]]) -> set[Cell]:
        """These txids count with other records; return the cells of both."""
        found = set[Cell]()
        for position, each in self.versions.items():
            if each.txid in counted:
                self.versions[position] = replace(each, records=counted[each.txid])
                found |= cells(each.records) | cells(counted[each.txid])
        return found

    def is_late(self, record: Record, mark: int | None) -> bool:
        if mark is None or not record.good:
            return False
        at = micros_of(record.at)
        return at < mark if self.sessions else at - at % CELL + CELL <= mark

    def late_of(self, version: Version) -> list[Record]:
        return [each for each in version.records if self.is_late(each, version.mark)]

    def times(self) -> Iterator[tuple[str, int, int]]:
        """Word, time and position of each record that counts in a window."""
        for position, each in self.versions.items():
            for record in each.records:
                if record.good and (self.late == "merge" or not self.is_late(record, each.mark)):
                    yield record.word, micros_of(record.at), position

    def windows(self) -> Windows:
        """By start and word. What is of a session is in order."""
        if not self.sessions:
            counts = Counter((word, at - at % CELL) for word, at, _ in self.times())
            return {
                (time_of(start), word): Window(start, start, start + CELL, n) for (word, start), n in counts.items()
            }
        return {
            (time_of(first), word): Window(first, last, last + GAP + AFTER, len(positions))
            for word, first, last, positions in self.joined()
        }

    def joined(self) -> Iterator[tuple[str, int, int, list[int]]]:
        """Of each session the word, first and last time, and the positions that its records are of."""
        word, first, last, positions = "", 0, 0, list[int]()
        for other, at, position in sorted(self.times()):
            if positions and (other != word or at > last + GAP):
                yield word, first, last, positions
                positions = []
            if not positions:
                word, first = other, at
            last, positions = at, [*positions, position]
        if positions:
            yield word, first, last, positions

    def together(self, position: int) -> set[Cell]:
        """The cells of sessions that have records of this position, and of another one."""
        found = set[Cell]()
        for word, first, last, positions in self.joined():
            if position in positions and len({*positions}) > 1:
                found |= Window(first, last, last, 0).cells(word)
        return found

    def rows(self, gone: set[int]) -> Counter[tuple[int, datetime, str, int | None]]:
        """The records that are kept, with their numbers, but for those of positions whose rows are gone."""
        return Counter(
            (position, record.at, record.word, number)
            for position, each in self.versions.items()
            if position not in gone
            for number, record in self.numbered(position, each.records)
            if record.good
        )

    def numbered(self, position: int, records: Sequence[Record]) -> Iterator[tuple[int | None, Record]]:
        base = self.bases.get(position)
        for number, record in enumerate(sorted(records)):
            yield None if base is None else base + number, record

    def failed(self, gone: set[int]) -> Counter[int]:
        """How many records of each position are in quarantine."""
        bad = {position: sum(not each.good for each in of.records) for position, of in self.versions.items()}
        return +Counter({position: number for position, number in bad.items() if position not in gone})

    def aside(self) -> Counter[tuple[datetime, str]]:
        """The late records that are kept aside."""
        return Counter((late.at, late.word) for each in self.versions.values() for late in self.late_of(each))
