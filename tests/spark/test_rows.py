"""An AppendState by Spark: every record is one row, with the key that it has in memory."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest
from every_aggregate import FIELDS, some_records

from txbatch import AppendState, FixedBatchSpout, Topology
from txbatch.direct.emitter import partials_of

MORE = "at timestamp, day date, raw binary, small float"
TIMES = [None, datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime(2024, 2, 29, 12, tzinfo=UTC)]


def shown(partials: dict[Any, Any]) -> dict[Any, list[str]]:
    """By key; NaN is not equal to itself, its text is, and times are the same in all libraries' zones."""
    return {key: [f"{each}" for each in row] for key, row in partials.items()}


@pytest.mark.rule("R9")
def test_rows_are_those_of_the_twin(emit: Callable[..., Any]) -> None:
    """Of all types, with nulls and NaN, and many that are equal; of two streams, one of which has nothing."""
    found = [
        {**each, "at": TIMES[n % 3], "day": [None, date(1960, 1, 2)][n % 2], "raw": [None, b"", b"\xff"][n % 3]}
        for n, each in enumerate(some_records(60) * 2)
    ]
    found = [{**each, "small": [0.5, -0.0, 0.0, None][n % 4]} for n, each in enumerate(found)]
    topology = Topology("rows")
    spout = FixedBatchSpout(f"{FIELDS}, {MORE}", len(found), *(tuple(each.values()) for each in found))
    stream = topology.new_stream("in", spout)
    aggregate = stream.persist(AppendState("rows"))
    stream.filter("k = 'none'").persist(AppendState("none"))
    emitted = emit(topology)
    expected = dict(partials_of(aggregate, found, 1))
    assert len(emitted.partials["rows"]) == len(expected) == emitted.manifest.states["rows"].kept == len(found)
    assert sorted(emitted.partials["rows"]) == sorted(expected)
    assert shown(emitted.partials["rows"]) == shown(expected)
    assert emitted.partials["none"] == {}
