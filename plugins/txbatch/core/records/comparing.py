"""How Spark compares values, in Python: which are the same, and which is less. Strings compare by their bytes.

>>> key_of([float("nan"), -0.0]) == key_of([float("nan"), 0.0])
True
>>> sorted([2.0, None, float("nan"), 1.0], key=lambda value: order_of([value]))
[1.0, 2.0, nan, None]
>>> grouped_by(-0.0), grouped_by(float("nan")) is grouped_by(float("nan"))
(0.0, True)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

_NAN = object()


def key_of(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return a key that is equal for the same values: NaN is itself, null is, and zero has no sign."""
    return tuple(_NAN if value != value else value for value in values)


def grouped_by(value: Any) -> Any:
    """Return a key's value as Spark and PostgreSQL have it: NaN is one object, equal to itself, and zero has no sign."""
    if not isinstance(value, float):
        return value
    return math.nan if value != value else value or 0.0


def order_of(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return what to sort by: NaN above all numbers, null last."""
    return tuple((value is None, value != value, 0 if value != value else value) for value in values)
