"""Reads values in the names of folders, as Hive writes them (`day=2026-11-01/`): of fields, and bounds of the times of files."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from txbatch.core.errors import WrongColumns
from txbatch.core.records.fields import Field

if TYPE_CHECKING:
    import pyarrow as pa

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
# The value of a field that the names of folders lack.
NOWHERE = object()
# The first time of a file, and the first time behind the file.
Span = tuple[datetime, datetime]
_DATE_LENGTH = len("2026-11-01")
_SPAN = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2})(?:[-T]([0-9]{2}))?)?)?")
_BITS = {"smallint": 16, "int": 32, "bigint": 64}


def written(name: str) -> list[tuple[str, str]]:
    """Return the names and values in the folders of a file's relative path, in order, as written.

    >>> written("a/day=2026-11-01/hour=07/x.csv")
    [('day', '2026-11-01'), ('hour', '07')]
    """
    parts = (part.partition("=") for part in name.split("/")[:-1])
    return [(key, value) for key, sign, value in parts if sign]


def folder_value(folder: Path, name: str, field: Field) -> Any:
    """Return a field's typed value from the names of folders; NOWHERE if no folder has the field's name.

    Raise BadRecord for a value that is not of the type, two values, or a name in other capitals.
    """
    found = written(name)
    values = {value for key, value in found if key == field.name}
    if not values:
        if alike := [key for key, _ in found if key.strip().lower() == field.name.lower()]:
            raise WrongColumns(
                f"{folder / name}: no folder names {field.name!r}, and one names {alike[0]!r}; write both alike"
            )
        return NOWHERE
    if len(values) > 1:
        raise WrongColumns(f"{folder / name}: folders name {field.name!r} as {' and '.join(sorted(map(repr, values)))}")
    (text,) = values
    return _typed(folder / name, field, text)


def _typed(file: Path, field: Field, raw: str) -> Any:
    try:
        text = unquote(raw, errors="strict")
        if text == HIVE_NULL:
            return None
        if field.type == "string":
            return text
        if field.type in _BITS and text.removeprefix("-").isdecimal() and text.isascii():
            number, bound = int(text), 1 << (_BITS[field.type] - 1)
            if -bound <= number < bound:
                return number
        if field.type == "date" and len(text) == _DATE_LENGTH:
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise WrongColumns(
        f"{file}: the folder's {field.name}={raw!r} is not read as {field.type}; declare it as string, an integer "
        "or a date (2024-01-01)"
    )


def given_values(folder: Path, name: str, fields: Sequence[Field], named: Collection[str]) -> dict[str, Any]:
    """Return the values that folders have of the named fields."""
    values = {field.name: folder_value(folder, name, field) for field in fields if field.name in named}
    return {field: value for field, value in values.items() if value is not NOWHERE}


@dataclass(frozen=True, slots=True)
class FolderTimes:
    """The times that files may hold by the folder `key`: a year, month, day or hour by the clocks of a zone."""

    key: str
    zone: str = "UTC"

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> FolderTimes | None:
        """Return the bounds that the options ask for, or None."""
        key = options.get("folder_time")
        return cls(key, options.get("timezone") or "UTC") if key else None

    def is_plain(self, name: str) -> bool:
        """Return whether at most one folder of a file has the name."""
        return sum(key == self.key for key, _ in written(name)) < 2

    def text(self, name: str) -> str | None:
        """Return what the folder has of the time, as written; None if no folder has any, or two have."""
        values = {value for key, value in written(name) if key == self.key}
        return values.pop() if len(values) == 1 else None

    def named(self, name: str) -> str:
        """Return the folder of a file's time, for messages."""
        return f"{self.key}={self.text(name)}"

    def span(self, name: str) -> Span | None:
        """Return the first time of a file, and the first time behind the file; None if any time is right.

        >>> [moment.isoformat() for moment in FolderTimes("day").span("day=2026-11-01/x.csv") or ()]
        ['2026-11-01T00:00:00+00:00', '2026-11-02T00:00:00+00:00']
        >>> FolderTimes("day").span("day=unknown/x.csv"), FolderTimes("day").span("x.csv")
        (None, None)
        """
        found = _SPAN.fullmatch(self.text(name) or "")
        if found is None:
            return None
        year, month, day, hour = (int(each) if each else None for each in found.groups())
        try:
            first = datetime(year or 0, month or 1, day or 1, hour or 0)  # noqa: DTZ001 (by the clocks of the zone)
            return self._moment(first), self._moment(_next(first, month, day, hour))
        except (ValueError, OverflowError):
            return None

    def _moment(self, local: datetime) -> datetime:
        from zoneinfo import ZoneInfo  # most jobs name no zone

        return local.replace(tzinfo=UTC if self.zone == "UTC" else ZoneInfo(self.zone)).astimezone(UTC)


def overlaps(span: Span | None, start: datetime, end: datetime) -> bool:
    """Return whether a file with the span may have a time from `start` to before `end`."""
    return span is None or (span[0] < end and start < span[1])


def moments(interval: Sequence[str]) -> Span:
    """Return the start and the end of an interval."""
    start, end = map(datetime.fromisoformat, interval)
    return start, end


def outside(times: pa.Array, first: datetime, last: datetime) -> int | None:
    """Return the index of the first time that is not from `first` to before `last`; None if all are, or are null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    low, high = (pa.scalar(each.date() if pa.types.is_date(times.type) else each, times.type) for each in (first, last))
    inside = pc.and_(pc.greater_equal(times, low), pc.less(times, high))
    return None if pc.all(inside).as_py() is not False else int(pc.index(inside, False).as_py())


def not_of_folder(name: str) -> str:
    """Return why a time is refused, and the way out."""
    return f"is not of the file's folder {name}; move the record into a file of its time, or leave out folder_time="


def _next(first: datetime, month: int | None, day: int | None, hour: int | None) -> datetime:
    if hour is not None:
        return first + timedelta(hours=1)
    if day is not None:
        return first + timedelta(days=1)
    if month is not None and first.month < 12:
        return first.replace(month=first.month + 1)
    return first.replace(year=first.year + 1, month=1)
