"""Checks of a coordinator's plan: the ledger must store the JSON unchanged, and ranges must have both ends.

Each check raises DefinitionError. `of` names the stream in the error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from txbatch.core.errors import DefinitionError, InvalidPlan
from txbatch.core.sources.spout import BatchCoordinator, PartitionedCoordinator, PartitionedSpout, Spout
from txbatch.core.stored_json import canonical_json, is_range


def check_reads(of: str, spout: Spout, coordinator: BatchCoordinator) -> None:
    """Refuse a spout if only one of spout and coordinator has partitions: no later plan could continue theirs."""
    partitioned = isinstance(coordinator, PartitionedCoordinator)
    if partitioned == isinstance(spout, PartitionedSpout):
        return
    spout_of, planned = f"{of}: {type(spout).__name__}", f"its coordinator, {type(coordinator).__name__},"
    raise InvalidPlan(
        f"{spout_of} has no partitions, and {planned} plans them; make it a PartitionedSpout"
        if partitioned
        else f"{spout_of} is a PartitionedSpout, and {planned} is no PartitionedCoordinator; give one, or make it a plain Spout"
    )


def check_json(of: str, plan: Any, bytes_max: int) -> None:
    """Refuse a plan if the ledger would change the plan by storing, or if the plan has more than `bytes_max` bytes."""
    try:
        canonical_json(plan, bytes_max)
        for text in _texts(plan):
            if not isinstance(text, str):
                raise InvalidPlan(f"metadata is not JSON: the key {text!r} is no string")
            if "\0" in text:
                raise InvalidPlan(f"metadata holds U+0000 in {text!r}, which PostgreSQL cannot show; encode it")
    except (DefinitionError, RecursionError) as error:
        raise InvalidPlan(f"{of}: {error}") from error


def check_ranges(of: str, plan: Any) -> None:
    """Refuse a plan without partitions, or with a range without start or end."""
    if not isinstance(plan, Mapping) or not isinstance(plan.get("partitions"), Mapping):
        raise InvalidPlan(
            f"{of}: {plan!r} was planned; a PartitionedCoordinator plans 'partitions', a range for each name"
        )
    for partition, range_ in plan["partitions"].items():
        if not is_range(range_):
            raise InvalidPlan(f"{of}: partition {partition!r} was planned as {range_!r}; a range has 'start' and 'end'")


def _texts(value: Any) -> Iterator[Any]:
    """Yield all texts in a JSON value, and all keys, whether texts or not. Objects of JSON are dicts."""
    left = [value]
    for each in left:
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            yield from each
            left.extend(each.values())
        elif isinstance(each, list | tuple):
            left.extend(each)
