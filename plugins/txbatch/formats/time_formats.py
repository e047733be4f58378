"""Formats of dates and times in strptime's words, checked when a topology is defined, as regular expressions."""

from __future__ import annotations

import re

MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec"
_FULL_NAMES = "January|February|March|April|May|June|July|August|September|October|November|December"
_WORDS = {
    "Y": r"(?P<year>\d{4})",
    "m": r"(?P<month>\d\d?)",
    "b": rf"(?P<name>(?i:{MONTHS.replace(' ', '|')}))",
    "B": rf"(?P<name>(?i:{_FULL_NAMES}))",
    "d": r"(?P<day>\d\d?)",
    "H": r"(?P<hour>\d\d?)",
    "I": r"(?P<twelve>0?[1-9]|1[0-2])",
    "p": r"(?P<half>(?i:am|pm))",
    "M": r"(?P<minute>\d\d?)",
    "S": r"(?P<second>\d\d?)",
    "f": r"(?P<fraction>\d+)",
    "z": r"(?P<zone>Z|[+-]\d\d:?\d\d)",
    "%": "%",
}
# Digits that follow one another without a separator have their full width: 2013111 is neither January nor November.
_ADJACENT = re.compile(r"%[YmdHIMSf](?=%[YmdHIMSf])")


def pattern(format_: str, *, clock: bool = True) -> str:
    """Return a regular expression for texts in a format. Raise ValueError if the format could not name one day, or one time."""
    words = [word for word in re.findall("%(.?)", format_) if word != "%"]
    _check(words, clock)
    narrow = _ADJACENT.search(format_) is not None
    parts = [_WORDS[part] if n % 2 else re.escape(part) for n, part in enumerate(re.split("%(.)", format_))]
    return f"^{''.join(part.replace('?)', ')') if narrow else part for part in parts)}$"


def _check(words: list[str], clock: bool) -> None:
    if unknown := [word for word in words if word not in _WORDS]:
        raise ValueError(f"has %{unknown[0]}, which is not one of %{' %'.join(_WORDS)}")
    named = {"m" if word in "bB" else word for word in words}
    if len(named) != len(words) or not {"Y", "m", "d"} <= named:
        raise ValueError("must have the year as %Y, the month and the day, each once")
    if not clock and named != {"Y", "m", "d"}:
        raise ValueError("has a time of the day, which a date does not keep; declare a timestamp")
    if ("I" in named) != ("p" in named) or {"H", "I"} <= named:
        raise ValueError("must have the hour as %H, or as %I with %p")
    for word, needs in (("M", "HI"), ("S", "M"), ("f", "S"), ("z", "HI")):
        if word in named and not named & set(needs):
            raise ValueError(f"has %{word} without %{needs[0]}")
