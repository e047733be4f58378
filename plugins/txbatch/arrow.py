"""Field types and values in Arrow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txbatch.core.errors import BadRecord, BadResult
from txbatch.core.records.fields import SIMPLE_TYPES, Field, array_of, decimal_scale
from txbatch.core.records.python_types import DECIMAL_TAKES, TAKES
from txbatch.core.text import repr_of

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN_MAX = 100
# Whose value is refused, unless a caller says so.
RETURNED = "a function returned"


def arrow_type(type_: str) -> pa.DataType:
    """Return the Arrow type of a field's type, or of an array's; times are UTC."""
    import pyarrow as pa

    if (element := array_of(type_)) is not None:
        return pa.list_(arrow_type(element))
    if type_ == "timestamp":
        return pa.timestamp("us", "UTC")
    if decimal_scale(type_) is not None:
        return pa.decimal128(*map(int, re.findall(r"\d+", type_)))
    return pa.type_for_alias(SIMPLE_TYPES[type_].arrow)


def arrow_array(values: Sequence[Any], field: Field, who: str = RETURNED) -> pa.Array:
    """Return a field's Python values in an Arrow array. Raise BadRecord if a value has the wrong type, or would be rounded or
    cut.
    """
    import pyarrow as pa

    taken, not_taken = TAKES.get(field.type, DECIMAL_TAKES)
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
        for value in values:  # of many Arrow does not say which
            arrow_array([value], field, who)
        raise


def _misfit(value: Any, field: Field, why: str, who: str) -> BadRecord:
    shown = repr_of(value)
    cut = shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}..."
    situation = BadResult if who == RETURNED else BadRecord
    return situation(
        f"{who} {cut} for {field.name!r}, declared {field.type}: {why}; convert it there, or declare another type"
    )
