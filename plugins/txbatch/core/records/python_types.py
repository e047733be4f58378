"""Python values for each type: the type takes a value if the value needs neither rounding nor cutting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal
from numbers import Integral, Real
from typing import Any

from txbatch.core.errors import OutOfRange
from txbatch.core.records.fields import (
    EXACT,
    FLOATING_TYPES,
    INTEGER_TYPES,
    array_of,
    decimal_digits,
    decimal_scale,
    encodable,
)

# What a field takes from Python, and what of that it does not: Arrow itself cuts fractions, and takes numbers for times. Of
# booleans it takes nothing else.
TAKES: Mapping[str, tuple[tuple[type, ...], tuple[type, ...]]] = {
    **dict.fromkeys(INTEGER_TYPES, ((Integral,), (bool,))),
    **dict.fromkeys(FLOATING_TYPES, ((Real,), (bool,))),
    "string": ((str,), ()),
    "boolean": ((object,), ()),
    "date": ((date,), (datetime,)),
    "timestamp": ((datetime,), ()),
    "binary": ((bytes, bytearray), ()),
}
DECIMAL_TAKES: tuple[tuple[type, ...], tuple[type, ...]] = ((int, Decimal), (bool,))
_BITS = {"bigint": 63, "int": 31, "smallint": 15}


def misfit(value: Any, type_: str) -> str | None:
    """Return why a value is not of a type, or of an array type; None if the value fits. Null fits every type.

    >>> misfit(3, "bigint"), misfit(0.5, "bigint"), misfit([2**31], "array<int>")
    (None, 'it is of the type float', 'it is out of range')
    """
    if value is None:
        return None
    if (element := array_of(type_)) is not None:
        if not isinstance(value, list | tuple):
            return f"it is of the type {type(value).__name__}"
        return next(
            (why for each in value if (why := "it holds null" if each is None else misfit(each, element))), None
        )
    taken, not_taken = TAKES.get(type_, DECIMAL_TAKES)
    if type_ == "boolean":
        taken = (bool,)
    if not isinstance(value, taken) or isinstance(value, not_taken):
        return f"it is of the type {type(value).__name__}"
    return _out_of_range(value, type_)


def all_fit(values: Sequence[Any], type_: str) -> bool:
    """Return True if no value of a column is a misfit. Common types are checked by a look at all values at once."""
    known = [value for value in values if value is not None]
    found = set(map(type, known))
    if not known or (found == {float} and type_ == "double"):
        return True
    if found == {int} and type_ in _BITS:
        return not (_out_of_range(min(known), type_) or _out_of_range(max(known), type_))
    if found == {str} and type_ == "string":
        return _out_of_range("".join(known), type_) is None
    return all(misfit(value, type_) is None for value in known)


def _out_of_range(value: Any, type_: str) -> str | None:
    if type_ in _BITS:
        bound = 1 << _BITS[type_]
        return None if -bound <= value < bound else "it is out of range"
    if type_ == "string":
        return None if "\0" not in value and encodable(value) else "it holds U+0000, or what is no text"
    digits = decimal_digits(type_)
    if digits is None:
        return None
    precision, scale = digits
    exact = Decimal(value)
    if not exact.is_finite() or (exact.adjusted() >= precision - scale and exact):
        return "it is out of range"
    exponent = exact.as_tuple().exponent
    return None if isinstance(exponent, int) and -exponent <= scale else "it has more digits after the point"


def fitted(finished: Any, type_: str) -> Any:
    """Return a finished value in its field's type: a decimal has the type's digits after the point.

    BadRecord for a decimal that is out of range.
    """
    if finished is None:
        return None
    if type_ in FLOATING_TYPES:
        return float(finished)
    scale = decimal_scale(type_)
    if scale is None:
        return finished
    rounded = Decimal(finished).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, EXACT)
    if misfit(rounded, type_):
        raise OutOfRange(f"what it comes to is out of range for {type_}; filter such records out in the job")
    return rounded
