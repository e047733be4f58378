"""The work of an attempt: the records read from a partition, and the partials staged of a state (R7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ReadPartition:
    """The number of records read from a partition, and the sum of the records' xxhash64 (as text, decimal(38,0)).

    `latest` is the largest time of a stream with a watermark, in microseconds since 1970. `ahead` is the number of records
    with a time after the batch was planned; None if the time of planning is unknown. Two of these are equal if the records and
    fingerprints are (R7c): `latest` follows from the records, and `ahead` also from the time of planning.
    """

    records: int
    fingerprint: str
    latest: int | None = field(default=None, compare=False, repr=False)
    ahead: int | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A Parquet file of partials, by the path in the attempt's folder."""

    name: str
    bytes: int
    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class StagedState:
    """The partials of one state: files, rows, and per value column the total over all rows, as text.

    `kept` is the number of records counted in the state, after the stream's operations; None from an older version. `late` is
    the number of records in a window over by the plan's watermark; None if the state has no watermark.
    """

    files: tuple[StagedFile, ...]
    rows: int
    totals: Mapping[str, str | None]
    kept: int | None = None
    late: int | None = None
