"""Values written in text, in Spark SQL and in Python alike: different values of a type have different texts."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from math import isfinite, isnan
from typing import Any

from txbatch.core.records.fields import FLOATING_TYPES, Field, decimal_scale
from txbatch.core.records.sql import spark_name
from txbatch.core.records.time_buckets import micros_of

_EPOCH = date(1970, 1, 1)
_IN_SQL = {
    "string": "{}",
    "binary": "hex({})",
    "date": "cast(unix_date({}) as string)",
    "timestamp": "cast(unix_micros({}) as string)",
    # The same by every Java; of null it would be a text.
    **dict.fromkeys(FLOATING_TYPES, "if({} is null, null, format_string('%a', cast({} as double)))"),
}


def text_sql(field: Field) -> str:
    """Return Spark SQL for the text of a field's value; null is null."""
    return _IN_SQL.get(field.type, "cast({} as string)").replace("{}", spark_name(field.name))


def text_of(field: Field, value: Any) -> str:
    """Return the text of a value, equal to the text by `text_sql`. The value is not null."""
    scale = decimal_scale(field.type)
    match value:
        case _ if scale is not None:
            return f"{Decimal(value):.{scale}f}"
        case bool():
            return str(value).lower()
        case float():
            return _hexadecimal(value)
        case bytes():
            return value.hex().upper()
        case datetime():
            return str(micros_of(value))
        case date():
            return str((value - _EPOCH).days)
        case _:
            return str(value)


def _hexadecimal(value: float) -> str:
    """Return a number in the format %a of Java.

    >>> [_hexadecimal(each) for each in (0.5, -0.0, 10.25, float("nan"), float("-inf"))]
    ['0x1.0p-1', '-0x0.0p0', '0x1.48p3', 'NaN', '-Infinity']
    """
    if not isfinite(value):
        return "NaN" if isnan(value) else f"{'-' * (value < 0)}Infinity"
    digits, _, exponent = value.hex().partition("p")
    whole, _, fraction = digits.partition(".")
    return f"{whole}.{fraction.rstrip('0') or '0'}p{int(exponent)}"
