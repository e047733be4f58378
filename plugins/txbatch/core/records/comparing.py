"""How Spark compares values, in Python: equal values, and the lesser of two. Strings compare by their bytes.

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
    """Return a key that is equal for equal values: NaN equals NaN, null equals null, and zero has no sign."""
    return tuple(_NAN if value != value else value for value in values)


def grouped_by(value: Any) -> Any:
    """Return a key's value like Spark and PostgreSQL: NaN is a single object, equal to itself, and zero has no sign."""
    if not isinstance(value, float):
        return value
    return math.nan if value != value else value or 0.0


def order_of(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return a sort key for values: NaN is above all numbers, null is last."""
    return tuple((value is None, value != value, 0 if value != value else value) for value in values)
