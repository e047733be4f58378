"""Dates and times from text, strictly: an exact instant, or refused. Works on whole columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txbatch.formats import time_formats
from txbatch.formats.misfit import BadValue

# Digits after the point that a number of this unit can have without being rounded to a microsecond.
UNITS = {"s": 6, "ms": 3, "us": 0}
EXAMPLES = {"timestamp": "2013-01-31T05:00:00Z", "date": "2013-01-31"}
_DATE = r"^(?P<date>\d{4}-\d\d-\d\d)$"
_TIMESTAMP = (
    r"^(?P<date>\d{4}-\d\d-\d\d)"
    r"(?:[T ](?P<clock>\d\d:\d\d(?::\d\d)?)(?:[.,](?P<fraction>\d+))?(?: ?(?P<zone>Z|UTC|[+-]\d\d(?::?\d\d)?))?)?$"
)
_EPOCH = r"^(?P<whole>-?\d{1,20})(?:\.(?P<fraction>\d+))?$"
_INSTANT = pa.timestamp("us", "UTC")
_FIRST, _LAST = (pa.scalar(text).cast(_INSTANT) for text in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"))
_TOO_FINE = "has more digits than microseconds"
_HINTS = {  # the first that is found in the text says why it has not the shape
    r"^$": "it is empty",
    r"^\s|\s$": "it has blanks around it",
    r"^\d\d?:\d\d": "it has no date",
    r"^-?\d{9,}(\.\d+)?$": 'it is a number; if it counts from 1970, say unit="s", "ms" or "us"',
    r"^\d{4}-.*[A-Za-z]{2,}\]?$": "a zone by name may mean several; write an offset, such as -05:00",
}


def parse(strings: pa.Array, type_: str, options: Mapping[str, Any]) -> pa.Array:
    """Return the dates, or the timestamps in UTC, of texts; null stays null.

    A timestamp is `YYYY-MM-DD`, then perhaps `T` or a blank, `hh:mm[:ss[.ffffff]]` and `Z`, `UTC` or an offset. Without a
    zone, the timestamp is in the zone of the option `timezone`. With `timestamp_format` or `date_format` the text follows the
    format; with `unit` the text is a number of seconds, milliseconds or microseconds since 1970. Raise BadValue for the first
    text that is not an exact instant of the years 1 to 9999, to the microsecond.
    """
    if type_ == "date":
        return _dates(strings, options.get("date_format"))
    instants = _epochs(strings, options["unit"]) if options.get("unit") else _timestamps(strings, options)
    outside = pc.or_(pc.less(instants, _FIRST), pc.greater(instants, _LAST))
    _refuse(outside, "is no timestamp: the year lies outside 0001 to 9999")
    return instants


def _dates(strings: pa.Array, format_: str | None) -> pa.Array:
    parts = _parts(strings, "date", _DATE, format_)
    _refuse(pc.starts_with(parts["date"], "0000"), "is no date: the year lies outside 0001 to 9999")
    return _cast(parts["date"], pa.date32(), "is no date: the calendar has no such day")


def _timestamps(strings: pa.Array, options: Mapping[str, Any]) -> pa.Array:
    parts = _parts(strings, "timestamp", _TIMESTAMP, options.get("timestamp_format"))
    clock, fraction = parts["clock"], pc.utf8_rtrim(parts["fraction"], "0")
    _refuse(pc.greater(pc.binary_length(fraction), 6), f"is no timestamp: it {_TOO_FINE}")
    clock = pc.if_else(pc.equal(clock, ""), "00:00", clock)
    point = pc.if_else(pc.equal(fraction, ""), "", ".")
    local = pc.binary_join_element_wise(parts["date"], "T", clock, point, fraction, "")
    return _instants(local, parts["zone"], options.get("timezone") or "UTC", options.get("ambiguous") or "raise")


def _instants(local: pa.Array, zone: pa.Array, timezone: str, ambiguous: str) -> pa.Array:
    reason = "is no timestamp: the calendar or the clock has no such time"
    bare = pc.equal(zone, "")
    offset = pc.if_else(pc.is_in(zone, pa.array(["", "UTC"])), "Z", zone)
    if timezone == "UTC" or not pc.any(bare).as_py():
        return _cast(pc.binary_join_element_wise(local, offset, ""), _INSTANT, reason)
    nothing = pa.scalar(None, pa.string())
    zoned = pc.if_else(bare, nothing, pc.binary_join_element_wise(local, offset, ""))
    clocks = _cast(pc.if_else(bare, local, nothing), pa.timestamp("us"), reason)
    return pc.coalesce(_cast(zoned, _INSTANT, reason), _assumed(clocks, timezone, ambiguous))


def _assumed(local: pa.Array, timezone: str, ambiguous: str) -> pa.Array:
    """Return the instants shown by the clocks of a zone."""

    def attempt(part: pa.Array) -> pa.Array:
        return pc.assume_timezone(part, timezone, ambiguous=ambiguous, nonexistent="raise").cast(_INSTANT)

    def reason(error: Exception) -> str:
        if "ambiguous" in str(error):
            return f'was twice on the clocks of {timezone}; write it with an offset, or say ambiguous="earliest" or "latest"'
        return f"was never on the clocks of {timezone}, which were put forward; write it with an offset"

    return _whole(local, attempt, reason)


def _epochs(strings: pa.Array, unit: str) -> pa.Array:
    parts = pc.extract_regex(strings, _EPOCH)
    _refuse(_lost(strings, parts), f'is no number of {unit} since 1970, as unit="{unit}" says')
    whole, fraction = pc.struct_field(parts, "whole"), pc.utf8_rtrim(pc.struct_field(parts, "fraction"), "0")
    digits = UNITS[unit]
    _refuse(pc.greater(pc.binary_length(fraction), digits), f"is no timestamp: it {_TOO_FINE}")
    micros = pc.binary_join_element_wise(whole, pc.utf8_rpad(fraction, digits, "0"), "")
    beyond = f"is no timestamp: with unit={unit!r} the year lies outside 0001 to 9999"
    return _cast(micros, pa.int64(), beyond).cast(_INSTANT)


def _parts(strings: pa.Array, type_: str, pattern: str, format_: str | None) -> dict[str, pa.Array]:
    """Return date, clock, fraction and zone as texts, empty if not given."""
    found = pc.extract_regex(strings, time_formats.pattern(format_, clock=type_ == "timestamp") if format_ else pattern)
    lost = _lost(strings, found)
    if pc.any(lost).as_py():
        index = pc.index(lost, True).as_py()
        wanted = f"it is not like {format_!r}" if format_ else _hint(strings[index].as_py(), type_)
        raise BadValue(index, f"is no {type_}: {wanted}")
    parts = {field.name: pc.struct_field(found, field.name) for field in found.type}
    return _canonical(parts) if format_ else parts


def _canonical(parts: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """Return the parts of a format in the form of ISO 8601."""
    month = parts["month"] if "month" in parts else _month(parts["name"])
    hour = _hour(parts["twelve"], parts["half"]) if "twelve" in parts else parts.get("hour", "00")
    clock = [
        part if isinstance(part, str) else _two(part)
        for part in (hour, parts.get("minute", "00"), parts.get("second", "00"))
    ]
    nothing = pc.utf8_slice_codeunits(parts["year"], 0, 0)
    return {
        "date": pc.binary_join_element_wise(parts["year"], _two(month), _two(parts["day"]), "-"),
        "clock": pc.binary_join_element_wise(*clock, ":"),
        "fraction": parts.get("fraction", nothing),
        "zone": parts.get("zone", nothing),
    }


def _month(names: pa.Array) -> pa.Array:
    short = pc.utf8_lower(pc.utf8_slice_codeunits(names, 0, 3))
    return pc.add(pc.index_in(short, pa.array(time_formats.MONTHS.split())), 1).cast(pa.string())


def _hour(twelve: pa.Array, half: pa.Array) -> pa.Array:
    hour = pc.if_else(pc.match_substring(twelve, "12"), 0, twelve.cast(pa.int32()))
    return pc.if_else(pc.equal(pc.utf8_lower(half), "pm"), pc.add(hour, 12), hour).cast(pa.string())


def _two(digits: pa.Array) -> pa.Array:
    return pc.utf8_lpad(digits, 2, "0")


def _hint(text: str, type_: str) -> str:
    found = next((hint for shape, hint in _HINTS.items() if re.search(shape, text)), None)
    return found or f"write it like {EXAMPLES[type_]}, or say {type_}_format="


def _lost(strings: pa.Array, parts: pa.Array) -> pa.Array:
    return pc.and_(pc.is_null(parts), pc.is_valid(strings))


def _refuse(bad: pa.Array, reason: str) -> None:
    """Raise BadValue for the first true index."""
    if (index := pc.index(bad, True).as_py()) >= 0:
        raise BadValue(index, reason)


def _cast(strings: pa.Array, type_: pa.DataType, reason: str) -> pa.Array:
    return _whole(strings, lambda part: part.cast(type_), lambda _: reason)


def _whole(values: pa.Array, attempt: Callable[[pa.Array], pa.Array], reason: Callable[[Exception], str]) -> pa.Array:
    """Return the result of `attempt` for all values. If `attempt` fails, BadValue names the first failing value."""
    try:
        return attempt(values)
    except pa.ArrowInvalid as error:
        if len(values) == 1:
            raise BadValue(0, reason(error)) from None
    half = len(values) // 2
    _whole(values[:half], attempt, reason)
    try:
        return _whole(values[half:], attempt, reason)
    except BadValue as bad:
        raise BadValue(half + bad.index, bad.reason) from None
