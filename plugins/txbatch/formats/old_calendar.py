"""Reads days in Parquet files of old Spark: before 1582-10-15 such a file counts days by the Julian calendar."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from txbatch.formats.misfit import BadValue

if TYPE_CHECKING:
    import pyarrow as pa

_VERSION = b"org.apache.spark.version"
# A newer Spark notes it where the writer was told to write as the old one.
_OLD_DATES, _OLD_INT96 = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"
_FIRST_SAME_DAY = -141_427  # 1582-10-15
_FIRST_SAME_MICROS = -2_208_988_800_000_000  # 1900-01-01: clocks of old went by the sun of a place
# From a day since 1970 to one since the first of March of the year -4800 of the Julian calendar.
_JULIAN = 2_440_588 + 32_082


def old(metadata: Mapping[bytes, bytes] | None) -> frozenset[str]:
    """Return which columns of a file have the calendar of a Spark before 3.0, by the footer: `date`, `timestamp`.

    >>> sorted(old({b"org.apache.spark.version": b"2.4.8"})), sorted(old({b"org.apache.spark.version": b"4.0.0"}))
    (['date', 'timestamp'], [])
    """
    found = metadata or {}
    if (version := re.match(rb"(\d+)\.(\d+)", found.get(_VERSION, b""))) is None:
        return frozenset()
    release = int(version[1]), int(version[2])
    if release < (3, 0) or _OLD_DATES in found:
        return frozenset({"date", "timestamp"})
    return frozenset({"timestamp"} if release < (3, 1) or _OLD_INT96 in found else ())


def in_our_calendar(column: pa.Array, type_: str) -> pa.Array:
    """Return an old column, dates as the days that were written. BadValue names the first time before 1900."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if type_ == "timestamp":
        early = pc.fill_null(pc.less(column.cast(pa.int64()), _FIRST_SAME_MICROS), False)
        if (index := pc.index(early, True).as_py()) >= 0:
            raise BadValue(
                index, "is before 1900, and a Spark before 3.0 or in its mode wrote it, by clocks of its own"
            )
        return column
    days = column.cast(pa.int32())
    if not pc.any(pc.less(days, _FIRST_SAME_DAY)).as_py():
        return column
    found = _days(pc.fill_null(days, 0).to_numpy().astype(np.int64)).astype(np.int32)
    return pc.if_else(pc.is_valid(days), pa.array(found), pa.scalar(None, pa.int32())).cast(column.type)


def _days(days: Any) -> Any:
    """Return days since 1970 of the same names in the calendar of today; a day that it lacks is the next one, as in Spark."""
    since = days + _JULIAN
    year = (4 * since + 3) // 1461
    of_year = since - 1461 * year // 4
    month = (5 * of_year + 2) // 153  # from March on
    day = of_year - (153 * month + 2) // 5
    months = (year - 4800 - 1970) * 12 + month + 2
    ours = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + day
    return np.where(days < _FIRST_SAME_DAY, ours, days)
