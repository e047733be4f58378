"""A model that keeps everything: the records of every version of every position, and what reports showed after each txid.

It knows nothing of folds. A value is reckoned anew from all records that count; what a report showed once is a stored copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Values = tuple[int, int | None, int | None, int | None, float | None]
# By key: count, sum, min, max and mean of the numbers, and the txid that changed them last.
Report = Mapping[str, tuple[Values, int]]


class Record(NamedTuple):
    """What a source has; `gone` takes away all that came for its key in earlier positions."""

    word: str
    n: int | None
    gone: bool = False


@dataclass
class Version:
    """What a committed txid counted for a position; `replaced_by` is the txid that counts in its place since."""

    txid: int
    position: int
    records: Sequence[Record]
    replaced_by: int | None = None


@dataclass
class Kept:
    """All that a topology ever counted."""

    versions: dict[int, Version] = field(default_factory=dict)
    report: dict[str, tuple[Values, int]] = field(default_factory=dict)
    shown: dict[int, Report] = field(default_factory=dict)

    def current(self, position: int) -> Version | None:
        """The version of a position that counts now."""
        counts = [each for each in self.versions.values() if each.position == position and each.replaced_by is None]
        assert len(counts) <= 1
        return counts[0] if counts else None

    def commit(self, txid: int, position: int, records: Sequence[Record]) -> None:
        """A txid counts for its position, in the place of what did before."""
        old = self.current(position)
        touched = {record.word for record in [*records, *(old.records if old else ())]}
        if old is not None:
            old.replaced_by = txid
        self.versions[txid] = Version(txid, position, records)
        for word in touched:
            values = self.values(word)
            self.report.pop(word, None)
            if values is not None:
                self.report[word] = values, txid

    def rebuilt(self, counted: Sequence[tuple[int, Sequence[Record]]], newest: int) -> None:
        """These versions count with other records, which were counted in this order; `newest` is the last of before."""
        touched, of = dict[str, int](), dict[int, tuple[Sequence[Record], int]]()
        for txid, records in counted:
            version = self.versions[txid]
            old, taken = of.get(version.position, ((), 0))
            touched |= {record.word: max(touched[record.word], taken) for record in old}
            touched |= {record.word: txid for record in records}
            of[version.position] = records, version.replaced_by or 0
            version.records = records
        values = {word: self.values(word) for word in touched}
        self.report = {word: (value, touched[word]) for word, value in values.items() if value is not None}
        self.shown = {txid: shown for txid, shown in self.shown.items() if txid <= newest}

    def final(self, txid: int) -> None:
        """All up to this txid is final: what reports show now is what they showed then."""
        self.shown.setdefault(txid, dict(self.report))

    def values(self, word: str) -> Values | None:
        """What the records of a key that count now come to; None: there is no such key."""
        counted: list[Record] = []
        for version in sorted(self.versions.values(), key=lambda each: each.position):
            own = [record for record in version.records if record.word == word and version.replaced_by is None]
            if any(record.gone for record in own):
                counted = []
            counted += [record for record in own if not record.gone]
        numbers = [record.n for record in counted if record.n is not None]
        if not counted:
            return None
        if not numbers:
            return len(counted), None, None, None, None
        return len(counted), sum(numbers), min(numbers), max(numbers), round(sum(numbers) / len(numbers), 6)
