"""Fields as Arrow has them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from txbatch.core.errors import BadRecord
from txbatch.core.fields import FLOATING_TYPES, INTEGER_TYPES, SIMPLE_TYPES, Field, decimal_scale

if TYPE_CHECKING:
    import pyarrow as pa

# What a field takes from Python, and what of that it does not: Arrow itself cuts fractions, and takes numbers for times. Of
# booleans it takes nothing else.
_TAKES: dict[str, tuple[tuple[type, ...], tuple[type, ...]]] = {
    **dict.fromkeys(INTEGER_TYPES, ((Integral,), (bool,))),
    **dict.fromkeys(FLOATING_TYPES, ((Real,), (bool,))),
    "string": ((str,), ()),
    "boolean": ((object,), ()),
    "date": ((date,), (datetime,)),
    "timestamp": ((datetime,), ()),
    "binary": ((bytes, bytearray), ()),
}
_DECIMAL = ((int, Decimal), (bool,))
_SHOWN_MAX = 100


def arrow_type(type_: str) -> pa.DataType:
    """Return the Arrow type of a field's type; times are UTC."""
    import pyarrow as pa

    if type_ == "timestamp":
        return pa.timestamp("us", "UTC")
    if decimal_scale(type_) is not None:
        return pa.decimal128(*map(int, re.findall(r"\d+", type_)))
    return pa.type_for_alias(SIMPLE_TYPES[type_].arrow)


def arrow_array(values: Sequence[Any], field: Field, who: str = "a function returned") -> pa.Array:
    """Values from Python for a field; BadRecord for one that is not of its type, or would be rounded or cut."""
    import pyarrow as pa

    taken, not_taken = _TAKES.get(field.type, _DECIMAL)
    for found in set(map(type, values)) - {type(None)}:
        if not issubclass(found, taken) or issubclass(found, not_taken):
            value = next(value for value in values if type(value) is found)
            raise _misfit(value, field, f"it is of the type {found.__name__}", who)
        if hasattr(found, "nanosecond") and any(getattr(value, "nanosecond", 0) for value in values):
            value = next(value for value in values if getattr(value, "nanosecond", 0))
            raise _misfit(value, field, "it has nanoseconds", who)
    try:
        return pa.array(values, arrow_type(field.type))
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        if len(values) == 1:
            raise _misfit(values[0], field, str(error), who) from error
        raise


def _misfit(value: Any, field: Field, why: str, who: str) -> BadRecord:
    shown = repr(value)
    cut = shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}..."
    return BadRecord(
        f"{who} {cut} for {field.name!r}, declared {field.type}: {why}; convert it there, or declare another type"
    )
