"""What Spark makes of records for each aggregate is what the twin makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import every_aggregate as module
import pytest
from every_aggregate import FIELDS, aggregates, every_aggregate, own_aggregates, some_records
from pyspark import cloudpickle

from txbatch import FixedBatchSpout, OpaqueState
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.direct.emitter import partials_of

cloudpickle.register_pickle_by_value(module)  # as that of a submitted job, which is __main__, is


def shown(aggregate: PersistentAggregate, partials: Any) -> dict[Any, dict[str, str]]:
    """By key and column; NaN is not equal to itself, its text is."""
    names = [column.name for column in aggregate.partial_columns]
    return {key: dict(zip(names, map(repr, values), strict=True)) for key, values in dict(partials).items()}


def only_own() -> Any:
    """None of which Spark counts the records by itself."""
    return {name: each for name, each in own_aggregates().items() if each.partial}


@pytest.mark.rule("R9")
@pytest.mark.parametrize("number", [pytest.param(1, marks=pytest.mark.whole), 80])
@pytest.mark.parametrize("aggregates", [aggregates, own_aggregates, only_own])
def test_partials_are_those_of_the_twin(emit: Callable[..., Any], aggregates: Any, number: int) -> None:
    """Of one record, and of many with ties: by key, by key where some are removed, as one global value, and of no records."""

    def removes(record: dict[str, Any]) -> bool:
        return record["n"] == 0

    found = some_records(number)
    spout = FixedBatchSpout(FIELDS, number, *(tuple(each.values()) for each in found))
    topology = every_aggregate(spout, values=aggregates())
    stream = topology.streams["in"]
    stream.group_by("k").persistent_aggregate(OpaqueState("r"), remove=removes, **aggregates())
    stream.persistent_aggregate(OpaqueState("all"), **aggregates())
    stream.filter("k = 'none'").persistent_aggregate(OpaqueState("none"), **aggregates())
    emitted = emit(topology).partials
    kept = {"none": []}
    for aggregate in topology.aggregates:
        name = aggregate.state.name
        assert shown(aggregate, emitted[name]) == shown(aggregate, partials_of(aggregate, kept.get(name, found)))
