"""Every operation and every aggregator that a job can import has a golden case, as data."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import txbatch
from txbatch import CombinerAggregator, Stream, Topology

GOLDEN = Path(__file__).parents[1] / "golden"
MADE = {"Stream", "GroupedStream", "PersistentAggregate"}
OPERATIONS = [
    name
    for of in (Stream, Topology)
    for name, method in inspect.getmembers(of, inspect.isfunction)
    if not name.startswith("_") and inspect.signature(method).return_annotation in MADE
]
AGGREGATORS = [
    name
    for name in txbatch.__all__
    if inspect.isclass(each := getattr(txbatch, name)) and issubclass(each, CombinerAggregator)
]
# What all cases of a folder are about, and name nowhere.
OF_FOLDERS = {
    "with_watermark": "late",
    "with_processing_time": "processing_time",
    "numbered": "numbered",
    "persistent_aggregate": "aggregates",
}
# What makes streams, and no operation of a batch.
NO_OPERATIONS = {"then", "new_stream", "live_query"}


def named(told: Any) -> Iterator[str]:
    """What a case calls: operations and aggregators stand first in a list, `persist` is a key."""
    if isinstance(told, dict):
        yield from told
        told = list(told.values())
    elif isinstance(told, list) and told and isinstance(told[0], str):
        yield told[0]
    if isinstance(told, list):
        for each in told:
            yield from named(each)


def in_cases() -> set[str]:
    cases = (json.loads(path.read_text(encoding="utf-8")) for path in GOLDEN.glob("*/*.json"))
    there = {name for name, folder in OF_FOLDERS.items() if any((GOLDEN / folder).glob("*.json"))}
    return there.union(*map(named, cases))


def test_every_operation_has_a_golden_case() -> None:
    assert {"filter", "join", "persist"} <= {*OPERATIONS}
    assert {*OPERATIONS} - NO_OPERATIONS - in_cases() == set()


def test_every_aggregator_has_a_golden_case() -> None:
    assert {"Count", "MinBy"} <= {*AGGREGATORS}
    assert {*AGGREGATORS} - {"CombinerAggregator"} - in_cases() == set()
    assert "Basket" in in_cases(), "a ReducerAggregator"


def test_every_aggregator_is_tried_in_every_kind_of_state_and_stands_in_the_table() -> None:
    """By `tests/every_aggregate.py`: through retries, restates and outages, in Spark and in PostgreSQL."""
    tried = (GOLDEN.parent / "every_aggregate.py").read_text(encoding="utf-8")
    table = (GOLDEN.parents[1] / "docs" / "aggregates.md").read_text(encoding="utf-8")
    builtin = {*AGGREGATORS} - {"CombinerAggregator"}
    assert {name for name in builtin if f"{name}(" not in tried} == set()
    assert {name for name in builtin if f"`{name}" not in table} == set()
