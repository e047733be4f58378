"""Random values of a field's type, often troublesome: null, NaN, infinity, empty and odd texts."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from txbatch.core.records.fields import FLOATING_TYPES, INTEGER_TYPES, decimal_scale

_TEXTS = ("", "a", "b", "B", "\u00e9", "\U0001f600", 'a"b', "{1,\\2}", "NULL")
# Sums of a few of these are exact, also of floats, so that nothing is found that only rounds.
_NUMBERS = (0.0, -0.0, 0.125, -2.5, 3.0, 1000.5, float("nan"), float("inf"), float("-inf"))
_INTEGER_MAX = 1_000
_DIGITS_MAX = 12
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def some_value(type_: str, random: Random) -> Any:
    """Return a value of a Spark SQL type, or null."""
    if random.randint(0, 5) == 0:
        return None
    if type_ in INTEGER_TYPES:
        return random.randint(-3, 3) if random.randint(0, 2) else random.randint(-_INTEGER_MAX, _INTEGER_MAX)
    if type_ in FLOATING_TYPES:
        return random.choice(_NUMBERS)
    if (scale := decimal_scale(type_)) is not None:
        digits = min(int(re.findall(r"\d+", type_)[0]), _DIGITS_MAX)
        return Decimal(random.randint(-(10**digits) + 1, 10**digits - 1)).scaleb(-scale)
    return _other(type_, random)


def _other(type_: str, random: Random) -> Any:
    match type_:
        case "boolean":
            return bool(random.randint(0, 1))
        case "binary":
            return random.choice(_TEXTS).encode()
        case "date":
            return date(2026, 1, 1) + timedelta(days=random.randint(-400, 400))
        case "timestamp":
            return _EPOCH + timedelta(microseconds=random.randint(0, 2**51))
        case _:
            return random.choice(_TEXTS)
