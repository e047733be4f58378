"""What is made of all records of a batch, in memory; values are compared as Spark does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from txbatch.core.comparing import key_of, order_of
from txbatch.core.fields import Field
from txbatch.core.operations import FirstN

Record = dict[str, Any]


def distinct(records: Iterable[Record]) -> Iterable[Record]:
    """Return the different records, each once."""
    found: dict[tuple[Any, ...], Record] = {}
    for record in records:
        found.setdefault(key_of(record.values()), record)
    return found.values()


def first_n(records: Iterable[Record], step: FirstN) -> list[Record]:
    """Return the first records of the batch, or of each group."""
    by = step.by.name
    known = (record for record in records if not (step.known and record[by] is None))
    return [each for group in grouped(known, step.keys).values() for each in _ordered(group, step)[: step.number]]


def grouped(records: Iterable[Record], keys: Sequence[Field]) -> dict[tuple[Any, ...], list[Record]]:
    """Return the records by their keys; a null is a key like any other."""
    found: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        found.setdefault(key_of(record[key.name] for key in keys), []).append(record)
    return found


def _ordered(records: list[Record], step: FirstN) -> list[Record]:
    """Return the records by the step's field, nulls last, and then by all fields."""
    known, null = ([each for each in records if (each[step.by.name] is None) is is_null] for is_null in (False, True))
    known.sort(key=lambda record: order_of(record.values()))
    known.sort(key=lambda record: order_of([record[step.by.name]]), reverse=step.descending)
    return [*known, *sorted(null, key=lambda record: order_of(record.values()))]
