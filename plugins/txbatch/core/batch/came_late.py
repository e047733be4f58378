"""Late records: records of earlier batches' intervals, met by an attempt in new or grown files.

An attempt gets a `Look`. The manifest names the late records, and so does the batch once committed.

>>> look = Look(((1, 0, 86_400_000_000),), {"in": {"x.csv": 0}})
>>> Look.from_json(look.to_json()) == look
True
>>> came_from_json(came_to_json({"in": {1: {"x.csv": Late(12, 0)}}}))
{'in': {1: {'x.csv': Late(records=12, since=0)}}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from txbatch.core.stored_json import read_count

# A position, with the start and the end of its interval, in microseconds since 1970.
Counted = tuple[int, int, int]


class Late(NamedTuple):
    """The number of late records of an interval in a file, and the first byte of the new part of the file."""

    records: int
    since: int


# By stream, position and file.
CameLate = Mapping[str, Mapping[int, Mapping[str, Late]]]


@dataclass(frozen=True, slots=True)
class Look:
    """The task of an attempt during reading: find records of the intervals in the files `arrived`.

    `intervals` do not overlap, and are in order of time. `arrived` has by stream the new files, with 0, and the grown files,
    with the first byte of the new lines.
    """

    intervals: tuple[Counted, ...] = ()
    arrived: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON for an assignment."""
        return {"intervals": [list(each) for each in self.intervals], "arrived": self.arrived}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Look:
        """Return the look of a JSON value."""
        intervals = tuple((position, start, end) for position, start, end in value["intervals"])
        return cls(intervals, value["arrived"])


def came_to_json(came: CameLate) -> dict[str, Any]:
    """Return the JSON for the manifest and the ledger, without streams without late records."""
    return {
        stream: {str(position): {file: list(late) for file, late in files.items()} for position, files in of.items()}
        for stream, of in came.items()
        if of
    }


def came_from_json(value: Mapping[str, Any]) -> CameLate:
    """Return the late records of a JSON value. Raise ValueError, LookupError, TypeError or AttributeError for wrong values."""
    return {
        str(stream): {
            read_count(int(position)): {str(file): Late(*map(read_count, late)) for file, late in files.items()}
            for position, files in of.items()
        }
        for stream, of in value.items()
    }
