"""Runs a job's Python functions in memory. SQL needs Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import nan
from numbers import Integral, Real
from typing import Any

from txbatch.core.aggregates.aggregator import CombinerAggregator
from txbatch.core.aggregates.merge import Partial
from txbatch.core.errors import BadFunction, BadRecord, NeedsSpark
from txbatch.core.records.fields import FLOATING_TYPES, INTEGER_TYPES, Field
from txbatch.core.records.functions import describe_error, is_of_record
from txbatch.core.records.time_buckets import micros_of, time_of
from txbatch.core.topology.python_steps import name_of


def called(what: str, function: Any) -> Any:
    """Return the function; raise DefinitionError if the function is SQL."""
    if not callable(function):
        raise needs_spark(what, function)
    return function


def needs_spark(what: str, function: Any) -> NeedsSpark:
    """Return the error for an operation that needs Spark."""
    return NeedsSpark(
        f"{what} {function!r} needs Spark; to run the topology in memory, write a Python function instead"
    )


def holds(what: str, condition: Any, record: Mapping[str, Any], *, show: bool = True, of: str = "") -> bool:
    """Return whether a state's condition holds for a record. If the condition raises, BadFunction names `of` and the
    condition.
    """
    asked = called(what, condition)
    try:
        return bool(asked(record))
    except Exception as error:
        if not is_of_record(error) or isinstance(error, BadRecord):
            raise
        raise BadFunction(
            f"{of}{what} {name_of(condition)} raised {describe_error(error, show=show)}; mend the job"
        ) from (error if show else None)


def refused(error: BadRecord, *, show: bool) -> str:
    """Return the error's text for an uncountable value. If values must not be shown, the text holds no value."""
    return error.text if show or isinstance(error, BadFunction) else "a value cannot be counted"


def init_of(aggregator: CombinerAggregator, record: Mapping[str, Any], *, show: bool = True, of: str = "") -> Partial:
    """Return a record's partial for a value; the partial of no records if `where` leaves the record out.

    If a function raises, BadFunction names the value by `of`, and shows the function's error if `show` is true.
    """
    counts = aggregator.where is None or holds("where", aggregator.where, record, show=show, of=of)
    return aggregator.init_of(record) if counts else aggregator.zero()


def record_of(values: Sequence[Any], fields: Sequence[Field]) -> dict[str, Any]:
    """Return a record of values with the types of Spark: 1.0 for 1 in a double, a single NaN, times in UTC."""
    return {field.name: _as_spark(value, field.type) for value, field in zip(values, fields, strict=True)}


def _as_spark(value: Any, type_: str) -> Any:
    if type_ == "timestamp" and isinstance(value, datetime):
        return time_of(micros_of(value)) if value == value else None
    if type_ in FLOATING_TYPES and isinstance(value, Real):
        number = float(value)
        return number if number == number else nan
    return int(value) if type_ in INTEGER_TYPES and isinstance(value, Integral) else value
