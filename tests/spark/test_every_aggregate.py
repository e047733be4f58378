"""What Spark makes of records for each aggregate is what the twin makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from every_aggregate import FIELDS, every_aggregate, some_records

from txbatch import FixedBatchSpout
from txbatch.memory.emitter import partials_of


@pytest.mark.rule("R9")
@pytest.mark.parametrize("number", [1, 80])
def test_partials_are_those_of_the_twin(emit: Callable[..., Any], number: int) -> None:
    """Of one record, and of many with ties."""
    found = some_records(number)
    topology = every_aggregate(FixedBatchSpout(FIELDS, number, *(tuple(each.values()) for each in found)))
    (aggregate,) = topology.aggregates
    emitted, expected = emit(topology).partials["s"], dict(partials_of(aggregate, found))
    names = [column.name for column in aggregate.columns]
    shown = [
        {key: dict(zip(names, map(repr, values), strict=True)) for key, values in each.items()}
        for each in (emitted, expected)
    ]
    assert shown[0] == shown[1]
