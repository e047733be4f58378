"""What runs in memory of a job: its Python functions. SQL needs Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txbatch.core.aggregator import CombinerAggregator
from txbatch.core.errors import DefinitionError
from txbatch.core.merge import Partial


def called(what: str, function: Any) -> Any:
    """Return the function; DefinitionError when it is SQL."""
    if not callable(function):
        raise needs_spark(what, function)
    return function


def needs_spark(what: str, function: Any) -> DefinitionError:
    """Return the error of an operation that does not run in memory."""
    return DefinitionError(f"{what} {function!r} needs Spark; write it as a Python function to run it in memory")


def init_of(aggregator: CombinerAggregator, record: Mapping[str, Any]) -> Partial:
    """Return what one record contributes to one value: that of no records, where `where` leaves it out."""
    counts = aggregator.where is None or called("where", aggregator.where)(record)
    return aggregator.init_of(record) if counts else aggregator.zero()
